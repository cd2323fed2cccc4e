/* Between pg.c, pg_statement.c and pg_pool.c only. */
#ifndef STORE_PG_PRIVATE_H
#define STORE_PG_PRIVATE_H

#include <stdatomic.h>
/* libpq's headers have a type of this name, which nothing here needs. */
#define pg_int64 libpq_int64
#include <libpq-fe.h>
#undef pg_int64

#include "store/pg.h"

struct pg {
    PGconn *conn; /* NULL: not connected */
    char *conninfo;
    bool in_transaction; /* as the caller sees it: stays until commit or rollback */
    int64_t timeout_ms;
    int64_t backoff_ms, retry_at_ms; /* no attempt to connect before */
    uint64_t session;
    atomic_bool *reachable; /* the pool's, or NULL */
    char sqlstate[6];       /* of the last refusal */
};

/* The connection goes, and with it what was outstanding. */
void pg_drop(struct pg *p);
/* Tells who asked (pg_report_to) whether the server answers. */
void pg_report(struct pg *p, bool reachable);
/* ST_UNAVAILABLE, reported and with its reason. */
MUST_CHECK enum status pg_away(struct pg *p, struct reason *why);
/* ST_OK: connected as far as can be seen. ST_UNAVAILABLE: not, or only after the back-off, or the
 * connection went within a transaction. */
MUST_CHECK enum status pg_ensure_connected(struct pg *p, struct reason *why);
/* poll() of one descriptor; a signal counts as news. */
int pg_wait_fd(int fd, short events, int64_t timeout_ms);
/* From now on p says in *reachable whether its last statement reached the server. */
void pg_report_to(struct pg *p, atomic_bool *reachable);

#endif
