/* The processes under the launcher: started, restarted with back-off, stopped, and found again when
 * an earlier launcher was killed. One thread; the caller feeds it the clock and the deaths. */
#ifndef APP_SUPERVISE_CHILDREN_H
#define APP_SUPERVISE_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "app/supervise/backoff.h"
#include "app/supervise/child_log.h"
#include "app/supervise/process.h"
#include "base/status.h"

/* Deaths in a row, none after a healthy time, at which a child is given up: the fifth comes after
 * 1.5 s of back-off. */
#define CHILD_DEATHS_MAX 5

struct child {
    struct process_spec spec; /* without a log file its output goes to standard error */
    char pid_file[PROCESS_PATH_MAX];
    int stop_signal;
    int64_t stop_ms; /* from the stop signal to SIGKILL */
    /* It is healthy from when somebody says so (ready_ms), not from its start, and in a crash loop
     * it is given up. */
    bool is_watched;
    bool is_optional;         /* a start goes on without it, while another such one is there */
    const struct child *with; /* one that exited with 0 starts again only while this one runs */
    /* its own: */
    bool wanted;                  /* started, and not yet told to stop */
    bool given_up;                /* not started until child_try_again */
    bool rests;                   /* it left by itself, with 0, and waits for `with` */
    pid_t pid;                    /* 0: not running */
    int64_t started_ms, ready_ms; /* 0: not ready yet */
    int64_t due_ms;               /* of the next start, when wanted and not running */
    struct backoff backoff;
    unsigned n_deaths;       /* unwished ends, since the beginning */
    struct child_log output; /* where spec.log is "" */
    char killed_for[128];    /* why child_end was called; "" it was not */
    char cause[160];         /* how it ended last: "signal 9 (Killed)", "exit 1" */
    struct last_lines lines; /* and the last lines of its log */
    char last[320];          /* both, for people: "exit 1: <its log's last line>" */
};

/* Starts it and writes its pid file (if it has a path). From now on it is wanted. */
MUST_CHECK enum status child_start(struct child *c, int64_t now_ms, struct reason *why);
/* Its process has been reaped: fills cause, line and last; returns the delay until its restart is
 * due, -1 when it is not wanted any more. */
int64_t child_on_exit(struct child *c, int wait_status, int64_t now_ms);
/* When it is to be started; INT64_MAX: not by itself. */
int64_t child_due_ms(const struct child *c);
/* It was given up, or waits for its back-off: due at once, all deaths forgotten. */
void child_try_again(struct child *c, int64_t now_ms);
/* No restart from now on; the stop signal is sent when it runs. */
void child_ask_to_stop(struct child *c);
/* Their processes change places, with what belongs to them: age, output, the cause they are killed
 * for, and what is in their log files (which change names). The pid files follow. */
void child_exchange(struct child *a, struct child *b);
/* SIGKILL to its process group. */
void child_kill(struct child *c);
/* The same, as a death whose cause is `why`: it starts again. */
void child_end(struct child *c, const char *why);
/* A process that an earlier launcher left is told to stop and waited for. ST_CONFLICT with its pid
 * when it doesn't go. */
MUST_CHECK enum status child_end_orphan(const struct child *c, struct reason *why);

#endif
