#include "app/supervise/state_file.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/supervise/files.h"

#define FILE_BYTES 2048

void state_file_path(const char *engine_socket, char out[PROCESS_PATH_MAX])
{
    snprintf(out, PROCESS_PATH_MAX, "%.600s.state", engine_socket);
}

_Static_assert(FILE_BYTES > LAST_LINES * (LAST_LINE_BYTES + 5) + 500 + 200, "all of it fits");

void state_file_write(const char *path, const char *state, unsigned deaths, const char *reason,
                      const struct last_lines *log)
{
    char file[FILE_BYTES];
    int n = snprintf(file, sizeof file,
                     "supervisor %d %" PRIu64 "\nstate %s\ndeaths %u\nreason %.500s\n",
                     (int)getpid(), process_started_ticks(getpid()), state, deaths, reason);

    for (unsigned i = 0; log != NULL && i < log->n; i++)
        n += snprintf(file + n, sizeof file - (size_t)n, "log %s\n", log->text[i]);

    if (file_write(path, file, (size_t)n, 0600, NULL) != ST_OK)
        unlink(path);
}

/* Whatever else is in it is not looked at. */
static void take_line(struct state_file *s, char *line)
{
    for (char *c = line; *c != '\0'; c++)
        if (*c < 0x20 || *c > 0x7E)
            *c = '?';
    if (strncmp(line, "state ", 6) == 0)
        snprintf(s->state, sizeof s->state, "%.15s", line + 6);
    else if (strncmp(line, "deaths ", 7) == 0)
        s->deaths = (unsigned)strtoul(line + 7, NULL, 10);
    else if (strncmp(line, "reason ", 7) == 0)
        snprintf(s->reason, sizeof s->reason, "%s", line + 7);
    else if (strncmp(line, "log ", 4) == 0)
        last_lines_add(&s->log, line + 4, strlen(line + 4));
}

bool state_file_read(const char *engine_socket, struct state_file *out)
{
    char path[PROCESS_PATH_MAX], text[FILE_BYTES], *next = NULL;
    struct state_file s = {0};
    uint64_t ticks = 0;
    int pid = 0;

    state_file_path(engine_socket, path);
    if (file_read(path, text, sizeof text) != ST_OK ||
        sscanf(text, "supervisor %d %" SCNu64, &pid, &ticks) != 2 || ticks == 0 ||
        process_started_ticks(pid) != ticks)
        return false;
    s.supervisor = pid;
    for (char *line = strtok_r(text, "\n", &next); line != NULL; line = strtok_r(NULL, "\n", &next))
        take_line(&s, line);
    *out = s;
    return true;
}
