/* The processes under the launcher: started, restarted with back-off, stopped, and found again when
 * an earlier launcher was killed. One thread; the caller feeds it the clock and the deaths. */
#ifndef APP_UP_CHILDREN_H
#define APP_UP_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "app/up/backoff.h"
#include "app/up/process.h"
#include "base/status.h"

struct child {
    struct process_spec spec;
    char pid_file[LAYOUT_PATH_MAX];
    int stop_signal;
    int64_t stop_ms; /* from the stop signal to SIGKILL */
    /* its own: */
    bool wanted; /* started, and not yet told to stop */
    pid_t pid;   /* 0: not running */
    int64_t started_ms;
    int64_t due_ms; /* of the next start, when wanted and not running */
    struct backoff backoff;
    char last[256]; /* how it ended last: "signal 9 (Killed)", "exit 1: <its log's last line>" */
};

/* Starts it and writes its pid file. From now on it is wanted. */
MUST_CHECK enum status child_start(struct child *c, int64_t now_ms, struct reason *why);
/* Its process has been reaped: fills c->last; returns the delay until its restart is due, -1 when
 * it is not wanted any more. */
int64_t child_on_exit(struct child *c, int wait_status, int64_t now_ms);
/* No restart from now on; the stop signal is sent when it runs. */
void child_ask_to_stop(struct child *c);
/* SIGKILL to its process group. */
void child_kill(struct child *c);
/* A process that an earlier launcher left is told to stop and waited for. ST_CONFLICT with its pid
 * when it doesn't go. */
MUST_CHECK enum status child_end_orphan(const struct child *c, struct reason *why);

#endif
