/* Postgres: blocking connections on threads of their own, never on a loop. A struct pg belongs to
 * one thread. It reconnects by itself (with back-off) when the server went away, but never in the
 * middle of a transaction: there the caller sees ST_UNAVAILABLE and starts over. */
#ifndef STORE_PG_H
#define STORE_PG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/worker.h"

struct pg;
struct pg_result;

/* Connects now; ST_UNAVAILABLE when it can't. connect_timeout and statement_timeout are set here.
 */
MUST_CHECK enum status pg_open(const char *conninfo, struct pg **out, struct reason *why);
/* As pg_open, but the first use connects: for pool threads that outlive the server. */
MUST_CHECK enum status pg_open_lazy(const char *conninfo, struct pg **out);
void pg_close(struct pg *p); /* NULL is fine */

/* How long one statement may take as seen from here, so that a frozen server hangs nobody: past it
 * the connection is dropped and the caller sees ST_UNAVAILABLE. 0: the default (11 s; the server's
 * own statement_timeout, unless the conninfo sets one, is 10 s). pg_exec_script has 10 minutes. */
void pg_set_timeout(struct pg *p, int64_t timeout_ms);

/* One statement with n text parameters ($1..$n; NULL: SQL null). *out may be NULL when the rows are
 * of no interest. ST_UNAVAILABLE: no server, or it went away (whether the statement took effect is
 * unknown); ST_CONFLICT: unique or serialization failure; ST_INVALID: anything else the server
 * said. */
MUST_CHECK enum status pg_exec(struct pg *p, const char *sql, int n, const char *const *params,
                               struct pg_result **out, struct reason *why);
/* Several statements without parameters (migrations), as one implicit transaction. */
MUST_CHECK enum status pg_exec_script(struct pg *p, const char *sql, struct reason *why);
MUST_CHECK enum status pg_begin(struct pg *p, struct reason *why);
MUST_CHECK enum status pg_commit(struct pg *p, struct reason *why);
void pg_rollback(struct pg *p); /* harmless outside a transaction */

void pg_result_free(struct pg_result *r); /* NULL is fine */
int pg_rows(const struct pg_result *r);
int64_t pg_affected(const struct pg_result *r); /* rows touched by INSERT/UPDATE/DELETE */
const char *pg_text(const struct pg_result *r, int row, int col); /* NULL: SQL null */
int64_t pg_int64(const struct pg_result *r, int row, int col);    /* 0 for SQL null */
bool pg_bool(const struct pg_result *r, int row, int col);

/* The SQLSTATE of the last statement that the server refused since the last pg_begin: five
 * characters, or "" for none. Valid until the next statement. */
const char *pg_sqlstate(const struct pg *p);

/* Sleeps until a NOTIFY arrives (after a LISTEN by pg_exec), `wake_fd` (-1: none) is readable, the
 * connection breaks or timeout_ms pass. True only for a NOTIFY. */
bool pg_wait_notify(struct pg *p, int64_t timeout_ms, int wake_fd);
/* Changes with every new connection: what a session held (LISTEN, SET, locks) is gone when this
 * differs. 0: never connected. */
uint64_t pg_session(const struct pg *p);

/* Threads with a connection each behind one bounded queue: submit works whose on_run receives the
 * struct pg as thread_state, and post the outcome to a loop themselves. */
struct pg_pool;
MUST_CHECK enum status pg_pool_start(const char *conninfo, unsigned n_threads, size_t capacity,
                                     struct pg_pool **out);
void pg_pool_stop(struct pg_pool *p); /* runs what is queued; NULL is fine */
MUST_CHECK enum status pg_pool_submit(struct pg_pool *p, struct work *w);
/* Whether the pool's last statement reached the server. Any thread. */
bool pg_pool_is_reachable(const struct pg_pool *p);

#endif
