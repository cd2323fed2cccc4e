/* A PostgreSQL server of the test's own: a fresh cluster on a Unix socket, no TCP port. */
#ifndef TESTS_LIB_PG_SERVER_H
#define TESTS_LIB_PG_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/lib/server_process.h"

struct pg_server {
    char dir[SCRATCH_BYTES];
    char bin[128];      /* folder of initdb and postgres */
    char conninfo[192]; /* of database "postgres", as the superuser */
    pid_t pid;          /* -1: stopped */
};

/* False, with a message, when PostgreSQL is not installed: the caller skips. */
bool pg_server_start(struct pg_server *s);
/* Ends the server and removes everything. */
void pg_server_stop(struct pg_server *s);
/* Crashes it (SIGKILL) and starts it again on the same data. */
void pg_server_crash(struct pg_server *s);
void pg_server_resume(struct pg_server *s);
/* Stops and continues every process of it: a frozen server. */
void pg_server_freeze(struct pg_server *s);
void pg_server_thaw(struct pg_server *s);

#endif
