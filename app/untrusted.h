/* Work on a stranger's file in a throw-away process, locked in as the engine is while it reads a
 * model (engine/core/lockdown.h), with a limit on memory and processor time. */
#ifndef APP_UNTRUSTED_H
#define APP_UNTRUSTED_H

#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/status.h"

struct untrusted_limits {
    unsigned cpu_s;
    size_t data_bytes;   /* what it allocates; a mapped file doesn't count */
    size_t output_bytes; /* what it says */
};

struct untrusted_work {
    const char *path; /* all it can read: a model's file or folder */
    /* In the child: 0: done. What it prints to standard output and error comes to the caller. */
    int (*run)(void *arg);
    void *arg;
    struct untrusted_limits limits;
};

/* ST_OK: run ended, *exit_code is its result, and `out` (caller's, appended to) has what it said,
 * in which all control characters but newlines are '?'. ST_CORRUPT: the process was killed, and the
 * reason says by what. ST_UNSUPPORTED: the machine can't lock it in; ST_IO, ST_NO_MEMORY. Forks: of
 * a process with one thread. */
MUST_CHECK enum status untrusted_run(const struct untrusted_work *w, struct buf *out,
                                     int *exit_code, struct reason *why);

#endif
