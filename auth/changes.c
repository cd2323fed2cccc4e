#include "auth/changes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/pg.h"

#define BATCH_ROWS 1000
/* A revoked key stops within a second: a question that takes longer than this counts as no answer.
 */
#define POLL_TIMEOUT_MS 2000

static const char sql_listen[] = "LISTEN sluice_changes";
static const char sql_poll[] =
    "SELECT n.position, extract(epoch FROM pg_postmaster_start_time())::text,"
    " c.position, c.kind, c.tenant_id, c.public_id"
    " FROM change_counter n LEFT JOIN LATERAL ("
    "  SELECT position, kind, tenant_id, public_id FROM changes WHERE position > $1"
    "  ORDER BY position LIMIT 1000) c ON true"
    " ORDER BY c.position";

struct changes {
    struct change_sink sink;
    int64_t poll_ms;
    struct pg *pg;
    int wake_fd;
    atomic_bool stopping;
    pthread_t thread;
    /* the thread's: */
    int64_t position;   /* rows up to it were handed over; -1: none yet */
    char server[40];    /* start time of the server that position is from */
    uint64_t listening; /* the session that LISTEN was said in */
    bool is_lost;
};

static void hand_over(struct changes *c, const struct pg_result *r, int row)
{
    int64_t position = pg_int64(r, row, 2);

    if (strcmp(pg_text(r, row, 3), "key") == 0)
        c->sink.on_key(c->sink.arg, pg_text(r, row, 5), position);
    else
        c->sink.on_tenant(c->sink.arg, pg_int64(r, row, 4), position);
    c->position = position;
}

/* A first look, a server that was restarted or replaced (it may be a copy that lacks the last
 * changes), a log that was cut past us or went back. */
static bool is_continuation(const struct changes *c, const struct pg_result *r)
{
    if (c->position == -1 || strcmp(c->server, pg_text(r, 0, 1)) != 0)
        return false;
    if (pg_text(r, 0, 2) == NULL)
        return pg_int64(r, 0, 0) == c->position;
    return pg_int64(r, 0, 2) == c->position + 1;
}

/* Whether there may be more rows. */
static bool apply(struct changes *c, const struct pg_result *r)
{
    int rows = pg_rows(r);

    if (!is_continuation(c, r)) {
        log_info(NULL, "auth.changes", "start position=%lld", (long long)pg_int64(r, 0, 0));
        snprintf(c->server, sizeof c->server, "%s", pg_text(r, 0, 1));
        c->position = pg_int64(r, 0, 0);
        c->sink.on_anything(c->sink.arg);
        return false;
    }
    if (pg_text(r, 0, 2) == NULL)
        return false;
    for (int i = 0; i < rows; i++)
        hand_over(c, r, i);
    return rows == BATCH_ROWS;
}

static enum status listen(struct changes *c)
{
    enum status s;

    if (c->listening != 0 && c->listening == pg_session(c->pg))
        return ST_OK;
    s = pg_exec(c->pg, sql_listen, 0, NULL, NULL, NULL);
    if (s == ST_OK)
        c->listening = pg_session(c->pg);
    return s;
}

static enum status poll_once(struct changes *c, bool *more)
{
    char position[24];
    const char *params[] = {position};
    struct pg_result *r = NULL;
    enum status s = listen(c);

    if (s != ST_OK)
        return s;
    snprintf(position, sizeof position, "%lld", (long long)c->position);
    s = pg_exec(c->pg, sql_poll, 1, params, &r, NULL);
    if (s != ST_OK)
        return s;
    if (pg_rows(r) == 0)
        s = ST_INTERNAL; /* change_counter has exactly one row */
    else
        *more = apply(c, r);
    pg_result_free(r);
    return s;
}

static void follow(struct changes *c)
{
    int64_t asked_ms = clock_mono_ms();
    bool more = true;
    enum status s = ST_OK;

    while (s == ST_OK && more)
        s = poll_once(c, &more);
    if (s == ST_OK) {
        c->sink.on_followed(c->sink.arg, asked_ms);
        if (c->is_lost)
            log_info(NULL, "auth.changes", "followed again");
    } else {
        c->sink.on_lost(c->sink.arg);
        if (!c->is_lost)
            log_warn(NULL, "auth.changes", "lost: %s", status_name(s));
    }
    c->is_lost = s != ST_OK;
}

static void *run(void *arg)
{
    struct changes *c = arg;

    while (!atomic_load(&c->stopping)) {
        follow(c);
        pg_wait_notify(c->pg, c->poll_ms, c->wake_fd);
    }
    return NULL;
}

static void changes_free(struct changes *c)
{
    pg_close(c->pg);
    if (c->wake_fd != -1)
        close(c->wake_fd);
    free(c);
}

enum status changes_start(const char *conninfo, int64_t poll_ms, const struct change_sink *sink,
                          struct changes **out)
{
    struct changes *c = calloc(1, sizeof *c);
    enum status s;

    if (c == NULL)
        return ST_NO_MEMORY;
    c->sink = *sink;
    c->poll_ms = poll_ms;
    c->position = -1;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s = c->wake_fd == -1 ? ST_IO : pg_open_lazy(conninfo, &c->pg);
    if (s == ST_OK) {
        pg_set_timeout(c->pg, POLL_TIMEOUT_MS);
        if (pthread_create(&c->thread, NULL, run, c) != 0)
            s = ST_NO_MEMORY;
    }
    if (s != ST_OK) {
        changes_free(c);
        return s;
    }
    pthread_setname_np(c->thread, "auth-changes");
    *out = c;
    return ST_OK;
}

void changes_stop(struct changes *c)
{
    if (c == NULL)
        return;
    atomic_store(&c->stopping, true);
    /* The counter can't overflow: this is its only write. */
    if (eventfd_write(c->wake_fd, 1) == -1)
        log_error(NULL, "auth.changes", "wake-up failed");
    pthread_join(c->thread, NULL);
    changes_free(c);
}
