#include "store/pg.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* libpq's headers have a type of this name, which nothing here needs. */
#define pg_int64 libpq_int64
#include <libpq-fe.h>
#undef pg_int64

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "store/pg_private.h"

/* connect_timeout is in seconds, and libpq takes less than 2 as 2. */
#define CONNECT_TIMEOUT_S "2"
#define SERVER_OPTIONS    "-c statement_timeout=10000 -c timezone=UTC -c datestyle=ISO"
/* A little more than the server's own limit: it should be the one to say so. */
#define STATEMENT_TIMEOUT_MS 11000
#define SCRIPT_TIMEOUT_MS    600000
#define BACKOFF_MIN_MS       50
#define BACKOFF_MAX_MS       2000

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

struct pg_result {
    PGresult *res;
};

/* ---- the connection ---- */

static void drop(struct pg *p)
{
    PQfinish(p->conn);
    p->conn = NULL;
}

static void report(struct pg *p, bool reachable)
{
    if (p->reachable != NULL)
        atomic_store_explicit(p->reachable, reachable, memory_order_relaxed);
}

static enum status away(struct pg *p, struct reason *why)
{
    report(p, false);
    return fail(why, ST_UNAVAILABLE, "PostgreSQL can't be reached");
}

/* libpq's message about a failed connection names hosts and sockets, never a password. */
static enum status connect_failed(struct pg *p, int64_t now_ms, struct reason *why)
{
    log_warn(NULL, "pg.connect", "retry_ms=%lld error=%s", (long long)p->backoff_ms,
             p->conn != NULL ? PQerrorMessage(p->conn) : "out of memory");
    if (p->conn != NULL)
        fail(why, ST_UNAVAILABLE, "PostgreSQL: %s", PQerrorMessage(p->conn));
    else
        fail(why, ST_UNAVAILABLE, "PostgreSQL: out of memory");
    drop(p);
    report(p, false);
    p->retry_at_ms = now_ms + p->backoff_ms;
    p->backoff_ms = int64_min(p->backoff_ms * 2, BACKOFF_MAX_MS);
    return ST_UNAVAILABLE;
}

/* A notice may quote values, so it is not printed. */
static void ignore_notice(void *arg, const PGresult *res)
{
    (void)arg;
    (void)res;
}

static enum status connect_now(struct pg *p, struct reason *why)
{
    /* What stands before dbname is a default: the conninfo inside dbname overrides it. */
    const char *const keys[] = {"connect_timeout", "options", "fallback_application_name", "dbname",
                                NULL};
    const char *const values[] = {CONNECT_TIMEOUT_S, SERVER_OPTIONS, "sluice", p->conninfo, NULL};

    p->conn = PQconnectdbParams(keys, values, 1);
    if (p->conn == NULL || PQstatus(p->conn) != CONNECTION_OK ||
        PQsetClientEncoding(p->conn, "UTF8") != 0 || PQsetnonblocking(p->conn, 1) != 0)
        return connect_failed(p, clock_mono_ms(), why);
    PQsetNoticeReceiver(p->conn, ignore_notice, NULL);
    p->backoff_ms = BACKOFF_MIN_MS;
    p->retry_at_ms = 0;
    p->session++;
    return ST_OK;
}

static int wait_for(int fd, short events, int64_t timeout_ms)
{
    struct pollfd pfd = {.fd = fd, .events = events};
    int n = poll(&pfd, 1, timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms);

    return n == -1 && errno == EINTR ? 1 : n;
}

/* A server that restarted while we were idle has closed the socket: seeing that before a statement
 * is sent saves the caller a failure whose effect would be unknown. */
static bool was_closed(struct pg *p)
{
    /* The server's farewell may lie before the end of the stream. */
    while (wait_for(PQsocket(p->conn), POLLIN, 0) > 0)
        if (PQconsumeInput(p->conn) == 0 || PQstatus(p->conn) != CONNECTION_OK)
            return true;
    return false;
}

static enum status ensure_connected(struct pg *p, struct reason *why)
{
    if (p->conn != NULL && was_closed(p))
        drop(p);
    if (p->conn != NULL)
        return ST_OK;
    if (p->in_transaction || clock_mono_ms() < p->retry_at_ms)
        return away(p, why);
    return connect_now(p, why);
}

static enum status new_pg(const char *conninfo, struct pg **out)
{
    struct pg *p = calloc(1, sizeof *p);

    if (p == NULL)
        return ST_NO_MEMORY;
    p->conninfo = strdup(conninfo);
    if (p->conninfo == NULL) {
        free(p);
        return ST_NO_MEMORY;
    }
    p->backoff_ms = BACKOFF_MIN_MS;
    p->timeout_ms = STATEMENT_TIMEOUT_MS;
    *out = p;
    return ST_OK;
}

enum status pg_open_lazy(const char *conninfo, struct pg **out)
{
    return new_pg(conninfo, out);
}

enum status pg_open(const char *conninfo, struct pg **out, struct reason *why)
{
    struct pg *p = NULL;
    enum status s = new_pg(conninfo, &p);

    if (s != ST_OK)
        return fail(why, s, "%s", status_text(s));
    s = connect_now(p, why);
    if (s != ST_OK) {
        pg_close(p);
        return s;
    }
    *out = p;
    return ST_OK;
}

void pg_close(struct pg *p)
{
    if (p == NULL)
        return;
    drop(p);
    free(p->conninfo);
    free(p);
}

void pg_set_timeout(struct pg *p, int64_t timeout_ms)
{
    p->timeout_ms = timeout_ms > 0 ? timeout_ms : STATEMENT_TIMEOUT_MS;
}

void pg_report_to(struct pg *p, atomic_bool *reachable)
{
    p->reachable = reachable;
}

uint64_t pg_session(const struct pg *p)
{
    return p->session;
}

const char *pg_sqlstate(const struct pg *p)
{
    return p->sqlstate;
}

/* ---- statements ---- */

/* SQLSTATE prefixes that differ from ST_INVALID; PostgreSQL's appendix A. */
static const struct {
    const char *prefix;
    enum status status;
} sqlstates[] = {
    {"08", ST_UNAVAILABLE},    /* connection exception */
    {"53", ST_UNAVAILABLE},    /* insufficient resources, disk full, too many connections */
    {"57P", ST_UNAVAILABLE},   /* shutting down, starting up */
    {"57014", ST_UNAVAILABLE}, /* statement_timeout */
    {"58", ST_UNAVAILABLE},    /* system error */
    {"25006", ST_UNAVAILABLE}, /* read-only: a standby answers for the primary */
    {"55P03", ST_UNAVAILABLE}, /* lock_timeout */
    {"40", ST_CONFLICT},       /* serialization failure, deadlock */
    {"23505", ST_CONFLICT},    /* unique violation */
    {"23P01", ST_CONFLICT},    /* exclusion violation */
};

static enum status status_of_sqlstate(const char *state)
{
    for (size_t i = 0; i < COUNT_OF(sqlstates); i++)
        if (strncmp(state, sqlstates[i].prefix, strlen(sqlstates[i].prefix)) == 0)
            return sqlstates[i].status;
    return ST_INVALID;
}

/* The server's sentence may quote values, so only its code and the constraint's name are kept, but
 * for scripts, which are files of ours. */
static enum status statement_failed(struct pg *p, const PGresult *res, bool is_script,
                                    struct reason *why)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    const char *constraint = PQresultErrorField(res, PG_DIAG_CONSTRAINT_NAME);
    enum status s;

    if (state == NULL || PQstatus(p->conn) != CONNECTION_OK) {
        log_warn(NULL, "pg.lost", "sqlstate=%s", state != NULL ? state : "none");
        drop(p);
        return away(p, why);
    }
    s = status_of_sqlstate(state);
    snprintf(p->sqlstate, sizeof p->sqlstate, "%s", state);
    log_write(s == ST_CONFLICT ? LOG_DEBUG : LOG_WARN, NULL, "pg.statement",
              "sqlstate=%s constraint=%s", state, constraint != NULL ? constraint : "none");
    if (is_script)
        return fail(why, s, "PostgreSQL: %s (SQLSTATE %s)",
                    PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY), state);
    return fail(why, s, "PostgreSQL refused the statement (SQLSTATE %s%s%s)", state,
                constraint != NULL ? ", " : "", constraint != NULL ? constraint : "");
}

/* Sends what is buffered and waits until a result can be had without blocking. */
static bool wait_result(struct pg *p, int64_t deadline_ms)
{
    for (;;) {
        int unsent = PQflush(p->conn);
        int64_t left_ms = int64_max(0, deadline_ms - clock_mono_ms());

        if (unsent == -1)
            return true; /* PQgetResult says what went wrong */
        if (unsent == 0 && !PQisBusy(p->conn))
            return true;
        /* Past the deadline, too, what has already arrived counts. */
        if (wait_for(PQsocket(p->conn), unsent == 0 ? POLLIN : POLLIN | POLLOUT, left_ms) == 0)
            return false;
        if (PQconsumeInput(p->conn) == 0)
            return true;
    }
}

/* All results of what was sent: the first failed one, else the last. NULL: past the deadline. */
static PGresult *collect(struct pg *p, int64_t deadline_ms)
{
    PGresult *kept = NULL, *res;

    for (;;) {
        if (!wait_result(p, deadline_ms)) {
            PQclear(kept);
            return NULL;
        }
        res = PQgetResult(p->conn);
        if (res == NULL)
            return kept;
        if (kept != NULL && PQresultStatus(kept) == PGRES_FATAL_ERROR) {
            PQclear(res);
            continue;
        }
        PQclear(kept);
        kept = res;
        /* A broken connection gives no end of results worth waiting for. */
        if (PQstatus(p->conn) != CONNECTION_OK)
            return kept;
    }
}

static enum status finish(struct pg *p, int64_t deadline_ms, bool is_script, struct pg_result **out,
                          struct reason *why)
{
    PGresult *res = collect(p, deadline_ms);
    ExecStatusType status = PQresultStatus(res);
    struct pg_result *r;

    if (res == NULL) {
        log_warn(NULL, "pg.deadline", "no answer in time: connection dropped");
        drop(p);
        return away(p, why);
    }
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_EMPTY_QUERY) {
        enum status s = statement_failed(p, res, is_script, why);

        PQclear(res);
        return s;
    }
    report(p, true);
    if (out == NULL) {
        PQclear(res);
        return ST_OK;
    }
    r = malloc(sizeof *r);
    if (r == NULL) {
        PQclear(res);
        return fail(why, ST_NO_MEMORY, "out of memory");
    }
    r->res = res;
    *out = r;
    return ST_OK;
}

enum status pg_exec(struct pg *p, const char *sql, int n, const char *const *params,
                    struct pg_result **out, struct reason *why)
{
    enum status s = ensure_connected(p, why);

    if (s != ST_OK)
        return s;
    if (PQsendQueryParams(p->conn, sql, n, NULL, params, NULL, NULL, 0) != 1) {
        log_warn(NULL, "pg.send", "the statement could not be sent: connection dropped");
        drop(p);
        return away(p, why);
    }
    return finish(p, clock_mono_ms() + p->timeout_ms, false, out, why);
}

enum status pg_exec_script(struct pg *p, const char *sql, struct reason *why)
{
    enum status s = ensure_connected(p, why);

    if (s != ST_OK)
        return s;
    if (PQsendQuery(p->conn, sql) != 1) {
        log_warn(NULL, "pg.send", "the script could not be sent: connection dropped");
        drop(p);
        return away(p, why);
    }
    return finish(p, clock_mono_ms() + SCRIPT_TIMEOUT_MS, true, NULL, why);
}

/* ---- transactions ---- */

enum status pg_begin(struct pg *p, struct reason *why)
{
    enum status s;

    assert(!p->in_transaction);
    p->sqlstate[0] = '\0';
    s = pg_exec(p, "BEGIN", 0, NULL, NULL, why);
    if (s == ST_OK)
        p->in_transaction = true;
    return s;
}

enum status pg_commit(struct pg *p, struct reason *why)
{
    struct pg_result *r = NULL;
    enum status s = pg_exec(p, "COMMIT", 0, NULL, &r, why);

    p->in_transaction = false;
    assert(s != ST_OK || r != NULL);
    /* COMMIT of a transaction that failed before succeeds as a rollback. */
    if (s == ST_OK && strcmp(PQcmdStatus(r->res), "COMMIT") != 0)
        s = fail(why, ST_INVALID, "the transaction had failed and was rolled back");
    pg_result_free(r);
    return s;
}

void pg_rollback(struct pg *p)
{
    if (!p->in_transaction)
        return;
    /* Without an answer the connection is gone, and the transaction with it. */
    if (pg_exec(p, "ROLLBACK", 0, NULL, NULL, NULL) != ST_OK)
        drop(p);
    p->in_transaction = false;
}

/* ---- results ---- */

void pg_result_free(struct pg_result *r)
{
    if (r == NULL)
        return;
    PQclear(r->res);
    free(r);
}

int pg_rows(const struct pg_result *r)
{
    return PQntuples(r->res);
}

int64_t pg_affected(const struct pg_result *r)
{
    return strtoll(PQcmdTuples(r->res), NULL, 10);
}

const char *pg_text(const struct pg_result *r, int row, int col)
{
    return PQgetisnull(r->res, row, col) ? NULL : PQgetvalue(r->res, row, col);
}

int64_t pg_int64(const struct pg_result *r, int row, int col)
{
    const char *text = pg_text(r, row, col);

    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

bool pg_bool(const struct pg_result *r, int row, int col)
{
    const char *text = pg_text(r, row, col);

    return text != NULL && text[0] == 't';
}

/* ---- notifications ---- */

/* Takes all that came: one is as good as many. */
static bool take_notifications(struct pg *p)
{
    bool any = false;
    PGnotify *n;

    while ((n = PQnotifies(p->conn)) != NULL) {
        PQfreemem(n);
        any = true;
    }
    return any;
}

bool pg_wait_notify(struct pg *p, int64_t timeout_ms, int wake_fd)
{
    struct pollfd fds[2] = {{.fd = p->conn != NULL ? PQsocket(p->conn) : -1, .events = POLLIN},
                            {.fd = wake_fd, .events = POLLIN}};

    if (p->conn != NULL && take_notifications(p))
        return true;
    if (poll(fds, 2, (int)int64_min(timeout_ms, INT32_MAX)) <= 0 || fds[0].revents == 0)
        return false;
    if (PQconsumeInput(p->conn) == 0) {
        drop(p);
        return false;
    }
    return take_notifications(p);
}
