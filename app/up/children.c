#include "app/up/children.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "app/up/files.h"
#include "base/clock.h"

/* An orphan got its death signal already: what it waits for is a drain or a fast shutdown. */
#define ORPHAN_WAIT_MS 20000
#define ORPHAN_POLL_MS 20

/* pid and start time: a pid alone may be somebody else's by the next start. */
static void write_pid_file(const struct child *c)
{
    char text[64];
    int n =
        snprintf(text, sizeof text, "%d %" PRIu64 "\n", (int)c->pid, process_started_ticks(c->pid));

    /* Without it only the search for orphans is blind, and the databases' own locks remain. */
    if (file_write(c->pid_file, text, (size_t)n, 0644, NULL) != ST_OK)
        unlink(c->pid_file);
}

enum status child_start(struct child *c, int64_t now_ms, struct reason *why)
{
    enum status st = process_start(&c->spec, &c->pid, why);

    c->wanted = true;
    if (st != ST_OK) {
        c->pid = 0;
        return st;
    }
    c->started_ms = now_ms;
    write_pid_file(c);
    return ST_OK;
}

static void describe_end(struct child *c, int wait_status)
{
    char line[180];

    if (WIFSIGNALED(wait_status)) {
        snprintf(c->last, sizeof c->last, "signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
        return;
    }
    process_last_line(c->spec.log, line, sizeof line);
    snprintf(c->last, sizeof c->last, "exit %d%s%s", WEXITSTATUS(wait_status),
             line[0] != '\0' ? ": " : "", line);
}

int64_t child_on_exit(struct child *c, int wait_status, int64_t now_ms)
{
    int64_t delay;

    describe_end(c, wait_status);
    c->pid = 0;
    unlink(c->pid_file);
    if (!c->wanted)
        return -1;
    delay = backoff_next(&c->backoff, now_ms - c->started_ms);
    c->due_ms = now_ms + delay;
    return delay;
}

void child_ask_to_stop(struct child *c)
{
    c->wanted = false;
    if (c->pid != 0)
        kill(c->pid, c->stop_signal);
}

void child_kill(struct child *c)
{
    if (c->pid != 0)
        kill(-c->pid, SIGKILL);
}

static bool is_running(pid_t pid, uint64_t ticks)
{
    return ticks != 0 && process_started_ticks(pid) == ticks;
}

enum status child_end_orphan(const struct child *c, struct reason *why)
{
    const struct timespec pause = {.tv_nsec = ORPHAN_POLL_MS * 1000000L};
    int64_t deadline = clock_mono_ms() + ORPHAN_WAIT_MS;
    char text[64];
    uint64_t ticks = 0;
    int pid = 0;

    if (file_read(c->pid_file, text, sizeof text) != ST_OK)
        return ST_OK;
    if (sscanf(text, "%d %" SCNu64, &pid, &ticks) != 2 || !is_running(pid, ticks)) {
        unlink(c->pid_file);
        return ST_OK;
    }
    kill(pid, c->stop_signal);
    while (is_running(pid, ticks)) {
        if (clock_mono_ms() >= deadline)
            return fail(why, ST_CONFLICT,
                        "%s of an earlier run (pid %d) does not stop: end it and try again",
                        c->spec.name, pid);
        nanosleep(&pause, NULL);
    }
    unlink(c->pid_file);
    return ST_OK;
}
