/* What a supervisor writes beside an engine's socket (SOCKET.state), for other processes of the
 * same user: `sluice status`, and an engine that plans its memory. Lines of "NAME VALUE". */
#ifndef APP_SUPERVISE_STATE_FILE_H
#define APP_SUPERVISE_STATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "app/supervise/last_lines.h"
#include "app/supervise/process.h"

struct state_file {
    pid_t supervisor;
    char state[16]; /* "running", "waiting", "stopped", "unloading", "unloaded", "idle" */
    unsigned deaths;
    char reason[512];      /* why it is away, or how it ended last; "" nothing to say; printable */
    struct last_lines log; /* what it said before it ended last; printable */
};

void state_file_path(const char *engine_socket, char out[PROCESS_PATH_MAX]);
/* This process is the supervisor. log: NULL: none. Nothing hangs of the file: where it can't be
 * written, it goes. */
void state_file_write(const char *path, const char *state, unsigned deaths, const char *reason,
                      const struct last_lines *log);
/* False: there is none, or the one that wrote it lives no more. */
bool state_file_read(const char *engine_socket, struct state_file *out);

#endif
