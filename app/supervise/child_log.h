/* What a child prints, where it has no log file: passed on to this process's standard error, its
 * last lines kept. One thread; never waits for the child. */
#ifndef APP_SUPERVISE_CHILD_LOG_H
#define APP_SUPERVISE_CHILD_LOG_H

#include <stddef.h>

#include "app/supervise/last_lines.h"
#include "base/status.h"

struct child_log {
    int fd; /* -1: none */
    struct last_lines lines;
    char begun[LAST_LINE_BYTES];
    size_t n_begun; /* bytes of the line that isn't complete yet */
};

void child_log_init(struct child_log *l);
/* A new pipe; its other end, for the child, goes to *write_fd and is the caller's to close. */
MUST_CHECK enum status child_log_open(struct child_log *l, int *write_fd, struct reason *why);
/* Passes on what is there. */
void child_log_drain(struct child_log *l);
/* The same, and closes. The last lines stay. */
void child_log_close(struct child_log *l);

#endif
