/* Locks a process in that works on files and frames of strangers: the engine, and the throw-away
 * process that reads an unknown model file. What is taken away doesn't come back.
 *
 * Three steps, since each part of a start needs less than the one before:
 *   begin   before the model file is opened, with one thread: no environment, no inherited
 *           descriptors, no capabilities, an empty network namespace, no core file; only the model
 *           can be read (Landlock), and the first list of system calls holds (seccomp): no socket
 *           is made, nothing executed, nothing written but to open descriptors. The parsers, which
 *           meet strangers' bytes first, run under this.
 *   parsed  before the device starts its threads: nothing can be read any more. Landlock binds the
 *           calling thread and its later children, so what helpers must not have goes before them.
 *   finish  the device is open, the socket is bound, all threads exist: the final list, over all of
 *           them at once. No file is opened, no thread or process begins.
 *
 * A system call outside the list kills the process (SIGSYS). Opening files is answered with EACCES
 * instead: libc looks into /proc and /etc by itself and goes on without. No storage is writable:
 * the engine needs none today; what needs some gets it as an inherited, unlinked descriptor.
 *
 * What a machine doesn't have is left out and said by lockdown_describe, or refused with
 * LOCKDOWN_REQUIRE. With LOCKDOWN_OFF all three do nothing. All of one process's main thread. */
#ifndef ENGINE_CORE_LOCKDOWN_H
#define ENGINE_CORE_LOCKDOWN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum lockdown_want {
    LOCKDOWN_OFF,
    LOCKDOWN_AUTO,    /* what there is */
    LOCKDOWN_REQUIRE, /* seccomp, Landlock and an empty network, or no start */
};

/* Strings are borrowed until finish. */
struct lockdown_config {
    enum lockdown_want want;
    const char *model_path;  /* a file, one of a split model's, or a folder: stays readable */
    const char *socket_path; /* may be bound until parsed and finish; NULL: none */
    const int *keep_fds;     /* open beside 0, 1 and 2 */
    size_t n_keep_fds;
    unsigned max_fds; /* RLIMIT_NOFILE: open at one time */
};

struct lockdown {
    struct lockdown_config cfg;
    int landlock_abi;   /* 0: none */
    int landlock_error; /* errno values; 0: it holds */
    int seccomp_error;
    int netns_error;
    bool keeps_dac; /* CAP_DAC_OVERRIDE: root reads a file that is another user's */
};

/* ST_UNSUPPORTED, with what is missing: want is LOCKDOWN_REQUIRE. Then the process is to end. */
MUST_CHECK enum status lockdown_begin(struct lockdown *l, const struct lockdown_config *cfg,
                                      struct reason *why);
MUST_CHECK enum status lockdown_parsed(struct lockdown *l, struct reason *why);
MUST_CHECK enum status lockdown_finish(struct lockdown *l, struct reason *why);

/* "seccomp=on landlock=abi4 netns=off(EPERM) ...", for the log. */
void lockdown_describe(const struct lockdown *l, char *out, size_t size);
/* This build is sanitized: the sanitizers' reports read files and look at threads, so the lists are
 * wider and prove nothing. */
bool lockdown_is_wide(void);

#endif
