/* Statements, transactions and their results, on a connection that pg.c keeps. */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "store/pg_private.h"

#define SCRIPT_TIMEOUT_MS 600000

struct pg_result {
    PGresult *res;
};

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
        pg_drop(p);
        return pg_away(p, why);
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
        if (pg_wait_fd(PQsocket(p->conn), unsent == 0 ? POLLIN : POLLIN | POLLOUT, left_ms) == 0)
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
        pg_drop(p);
        return pg_away(p, why);
    }
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_EMPTY_QUERY) {
        enum status s = statement_failed(p, res, is_script, why);

        PQclear(res);
        return s;
    }
    pg_report(p, true);
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
    enum status s = pg_ensure_connected(p, why);

    if (s != ST_OK)
        return s;
    if (PQsendQueryParams(p->conn, sql, n, NULL, params, NULL, NULL, 0) != 1) {
        log_warn(NULL, "pg.send", "the statement could not be sent: connection dropped");
        pg_drop(p);
        return pg_away(p, why);
    }
    return finish(p, clock_mono_ms() + p->timeout_ms, false, out, why);
}

enum status pg_exec_script(struct pg *p, const char *sql, struct reason *why)
{
    enum status s = pg_ensure_connected(p, why);

    if (s != ST_OK)
        return s;
    if (PQsendQuery(p->conn, sql) != 1) {
        log_warn(NULL, "pg.send", "the script could not be sent: connection dropped");
        pg_drop(p);
        return pg_away(p, why);
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
        pg_drop(p);
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
