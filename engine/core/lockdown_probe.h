/* Ways out of a locked process, to be tried: each in a child of its own, since the answer to most
 * is death. The child locks in first, as its caller says, and then tries. For tests, and for
 * `sluice engine --check-lockdown`. */
#ifndef ENGINE_CORE_LOCKDOWN_PROBE_H
#define ENGINE_CORE_LOCKDOWN_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What the tries aim at. */
struct lockdown_targets {
    const char *secret_path; /* a file that the process could read without the lock */
    const char *write_path;  /* a file that is there and that it could write */
};

struct lockdown_probe {
    const char *name;
    int (*attempt)(const struct lockdown_targets *t); /* 0: it got out; else the errno */
    int refusal; /* once locked for good: this errno; 0: killed by SIGSYS */
    int first;   /* the same for the lock under which the model is read */
};

extern const struct lockdown_probe lockdown_probes[];
extern const size_t lockdown_probes_count;

enum lockdown_outcome {
    LOCKDOWN_ESCAPED,
    LOCKDOWN_REFUSED, /* with `error` */
    LOCKDOWN_KILLED,  /* by SIGSYS */
    LOCKDOWN_BROKEN,  /* the child died of the signal `error`; 0: it didn't lock in */
};

struct lockdown_result {
    enum lockdown_outcome outcome;
    int error;
};

/* Forks; the child calls lock(arg), which returns 0 when it holds, and then makes the attempt. */
struct lockdown_result lockdown_probe_run(const struct lockdown_probe *p,
                                          const struct lockdown_targets *t, int (*lock)(void *arg),
                                          void *arg);
/* As `want` says: p->refusal or p->first. */
bool lockdown_probe_held(const struct lockdown_result *r, int want);

#endif
