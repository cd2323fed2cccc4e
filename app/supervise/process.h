/* Starting processes: account, log, folder, the signal they get when the launcher dies. One
 * thread. */
#ifndef APP_SUPERVISE_PROCESS_H
#define APP_SUPERVISE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

#define PROCESS_ARGS_MAX 64
#define PROCESS_PATH_MAX 640

struct account {
    bool change; /* false: as the launcher itself */
    uid_t uid;
    gid_t gid;
};

struct process_spec {
    const char *name;              /* for messages: "PostgreSQL" */
    const char *const *argv;       /* NULL-terminated; [0] is a path or on PATH */
    const struct account *account; /* NULL: the launcher's */
    const char *cwd;               /* one that the account can enter */
    char log[PROCESS_PATH_MAX];    /* gets standard output and error; "": output_fd does */
    int output_fd;                 /* with log "" */
    int death_signal;              /* sent when the launcher dies (PR_SET_PDEATHSIG) */
};

/* In a process group of its own, no standard input, all signals at their defaults. ST_NOT_FOUND
 * when the program isn't there. */
MUST_CHECK enum status process_start(const struct process_spec *spec, pid_t *out,
                                     struct reason *why);
/* Runs to its end; a failure carries the last line of its log. */
MUST_CHECK enum status process_run(const struct process_spec *spec, struct reason *why);
/* Start time in clock ticks since boot (proc(5), field 22): pid and this name a process. 0: there
 * is none, or only its zombie. */
uint64_t process_started_ticks(pid_t pid);
/* Who wrote "PID TICKS" into the file; 0: nobody, or one that lives no more. ticks: may be NULL. */
pid_t process_of_pid_file(const char *path, uint64_t *ticks);

#endif
