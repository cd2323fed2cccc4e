/* Servers that a test starts for itself: a scratch folder with a short path (Unix sockets have 107
 * bytes), an unprivileged user where the test is root, and no server left behind when the test dies
 * (PR_SET_PDEATHSIG). What goes wrong here aborts the test. */
#ifndef TESTS_LIB_SERVER_PROCESS_H
#define TESTS_LIB_SERVER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define SCRATCH_BYTES 64

/* A folder of our own under /tmp that the servers' user may write to. */
void scratch_make(char out[SCRATCH_BYTES]);
void scratch_remove(const char *dir);

/* Runs argv (argv[0] is a path, or found in PATH) as the servers' user, its output into
 * dir/NAME.log. */
pid_t server_spawn(const char *dir, const char *name, const char *const *argv);
/* As server_spawn, and waits: the exit status, or -1. */
int server_run(const char *dir, const char *name, const char *const *argv);
/* Sends the signal and waits for the end. */
void server_end(pid_t pid, int signal);
/* Where a program is: in PATH or the glob pattern; false when nowhere. */
bool server_find(const char *program, const char *pattern, char *out, size_t cap);

#endif
