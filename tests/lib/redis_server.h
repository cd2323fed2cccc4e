/* A Redis server of the test's own: AOF, no eviction, on a Unix socket, no TCP port. */
#ifndef TESTS_LIB_REDIS_SERVER_H
#define TESTS_LIB_REDIS_SERVER_H

#include <stdbool.h>

#include "tests/lib/server_process.h"

struct redis_server {
    char dir[SCRATCH_BYTES];
    char program[128];
    char socket_path[SCRATCH_BYTES + 16];
    pid_t pid; /* -1: stopped */
};

/* False, with a message, when Redis is not installed: the caller skips. */
bool redis_server_start(struct redis_server *s);
/* Ends the server and removes everything. */
void redis_server_stop(struct redis_server *s);
/* Kills it; resume starts it again on the same data and waits until it answers. */
void redis_server_crash(struct redis_server *s);
void redis_server_resume(struct redis_server *s);
void redis_server_freeze(struct redis_server *s);
void redis_server_thaw(struct redis_server *s);
/* One command, given as words; the reply's integer, or -1 for any other reply. Blocking. */
long long redis_server_ask(struct redis_server *s, const char *const *words, int n);

#endif
