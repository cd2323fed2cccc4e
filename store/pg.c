/* The connection: opened, seen to be closed, opened again after a back-off; notifications. */
#include "store/pg.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "store/pg_private.h"

/* connect_timeout is in seconds, and libpq takes less than 2 as 2. */
#define CONNECT_TIMEOUT_S "2"
#define SERVER_OPTIONS    "-c statement_timeout=10000 -c timezone=UTC -c datestyle=ISO"
/* A little more than the server's own limit: it should be the one to say so. */
#define STATEMENT_TIMEOUT_MS 11000
#define BACKOFF_MIN_MS       50
#define BACKOFF_MAX_MS       2000

void pg_drop(struct pg *p)
{
    PQfinish(p->conn);
    p->conn = NULL;
}

void pg_report(struct pg *p, bool reachable)
{
    if (p->reachable != NULL)
        atomic_store_explicit(p->reachable, reachable, memory_order_relaxed);
}

enum status pg_away(struct pg *p, struct reason *why)
{
    pg_report(p, false);
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
    pg_drop(p);
    pg_report(p, false);
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

int pg_wait_fd(int fd, short events, int64_t timeout_ms)
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
    while (pg_wait_fd(PQsocket(p->conn), POLLIN, 0) > 0)
        if (PQconsumeInput(p->conn) == 0 || PQstatus(p->conn) != CONNECTION_OK)
            return true;
    return false;
}

enum status pg_ensure_connected(struct pg *p, struct reason *why)
{
    if (p->conn != NULL && was_closed(p))
        pg_drop(p);
    if (p->conn != NULL)
        return ST_OK;
    if (p->in_transaction || clock_mono_ms() < p->retry_at_ms)
        return pg_away(p, why);
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
    pg_drop(p);
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
        pg_drop(p);
        return false;
    }
    return take_notifications(p);
}
