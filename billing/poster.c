#include "billing/poster.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

/* About 300 KB of JSON: large enough that the commit no longer counts, small enough to repeat. */
#define BATCH_ROWS 500
/* A change of price is seen this late at most, unless it was entered ahead of its time. */
#define PRICES_MS      2000
#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 2000

/* The row's text comes as JSON of usage_row_put_json; the two stamps travel as text, because a
 * number of seconds would be a float. Posting again changes nothing. */
static const char insert_sql[] =
    "INSERT INTO usage_events"
    " (id, admitted_at, ended_at, tenant_id, project_id, key_id, model, endpoint,"
    "  client_request_id, stream, outcome, finish_reason, prompt_tokens, cached_tokens,"
    "  output_tokens, ttft_us, price_id, currency, cost_nanos) "
    "SELECT id, admitted_at, ended_at, tenant_id, project_id, key_id, model, endpoint,"
    "       client_request_id, stream, outcome, finish_reason, prompt_tokens, cached_tokens,"
    "       output_tokens, ttft_us, price_id, currency, cost_nanos"
    "  FROM jsonb_to_recordset($1::jsonb) AS r("
    "       id uuid, admitted_at timestamptz, ended_at timestamptz, tenant_id bigint,"
    "       project_id bigint, key_id bigint, model text, endpoint text, client_request_id text,"
    "       stream boolean, outcome text, finish_reason text, prompt_tokens bigint,"
    "       cached_tokens bigint, output_tokens bigint, ttft_us bigint, price_id bigint,"
    "       currency text, cost_nanos bigint) "
    "ON CONFLICT (id, admitted_at) DO NOTHING";

/* The month of the stamp and the next, so that the turn of a month waits for nothing. */
static const char partition_sql[] = "SELECT usage_partition($1::timestamptz), "
                                    "usage_partition($1::timestamptz + interval '1 month')";

struct poster {
    struct journal *journal;
    struct prices *prices;
    int64_t post_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping; /* under the lock, and so the deadline */
    int64_t deadline_ms;
    /* The thread's own: */
    struct pg *pg;
    struct usage_row rows[BATCH_ROWS];
    size_t n_rows;
    struct buf json;
    int months[2]; /* whose partitions are known to be there: years * 12 + months */
    uint64_t posted_seq;
    int64_t prices_due_ms, backoff_ms;
    atomic_bool ok, ready;
    atomic_uint_least64_t posted;
};

static int month_of(int64_t unix_us)
{
    time_t s = (time_t)(unix_us / 1000000);
    struct tm tm;

    gmtime_r(&s, &tm);
    return tm.tm_year * 12 + tm.tm_mon;
}

static enum status ensure_partition(struct poster *p, int64_t unix_us, struct reason *why)
{
    char text[USAGE_TIME_TEXT_BYTES];
    const char *params[] = {text};
    int month = month_of(unix_us);
    enum status s;

    if (p->months[0] == month || p->months[1] == month)
        return ST_OK;
    usage_format_time(unix_us, text);
    s = pg_exec(p->pg, partition_sql, 1, params, NULL, why);
    if (s == ST_OK) {
        p->months[1] = p->months[0];
        p->months[0] = month;
    }
    return s;
}

static void put_batch(struct poster *p)
{
    buf_clear(&p->json);
    buf_putc(&p->json, '[');
    for (size_t i = 0; i < p->n_rows; i++) {
        if (i > 0)
            buf_putc(&p->json, ',');
        usage_row_put_json(&p->json, &p->rows[i]);
    }
    buf_putc(&p->json, ']');
}

static enum status insert_batch(struct poster *p, struct reason *why)
{
    const char *params[] = {buf_cstr(&p->json)};
    enum status s = pg_begin(p->pg, why);

    if (s != ST_OK)
        return s;
    for (size_t i = 0; s == ST_OK && i < p->n_rows; i++)
        s = ensure_partition(p, p->rows[i].admission.admitted_at_us, why);
    if (s == ST_OK)
        s = pg_exec(p->pg, insert_sql, 1, params, NULL, why);
    if (s == ST_OK)
        return pg_commit(p->pg, why);
    pg_rollback(p->pg);
    return s;
}

static enum status post_batch(struct poster *p, struct reason *why)
{
    enum status s;

    put_batch(p);
    if (p->json.failed)
        return ST_NO_MEMORY;
    s = insert_batch(p, why);
    if (s != ST_OK) {
        /* What was made in that transaction is not there. */
        p->months[0] = p->months[1] = -1;
        return s;
    }
    p->posted_seq = p->rows[p->n_rows - 1].seq;
    journal_posted(p->journal, p->posted_seq, p->n_rows);
    atomic_fetch_add(&p->posted, p->n_rows);
    p->n_rows = 0;
    return ST_OK;
}

static enum status refresh_prices(struct poster *p, struct reason *why)
{
    int64_t now_ms = clock_mono_ms();
    enum status s;

    if (now_ms < p->prices_due_ms)
        return ST_OK;
    s = prices_load(p->prices, p->pg, why);
    if (s == ST_OK)
        p->prices_due_ms = now_ms + PRICES_MS;
    return s;
}

static bool is_past_deadline(struct poster *p)
{
    bool past;

    pthread_mutex_lock(&p->lock);
    past = p->stopping && clock_mono_ms() >= p->deadline_ms;
    pthread_mutex_unlock(&p->lock);
    return past;
}

/* Everything that is there to post, batch by batch; a long backlog keeps no price from being seen.
 */
static enum status post_rows(struct poster *p, struct reason *why)
{
    enum status s;

    do {
        s = refresh_prices(p, why);
        if (s == ST_OK && p->n_rows == 0)
            s = row_source_take(journal_rows(p->journal), p->rows, BATCH_ROWS, &p->n_rows, why);
        if (s != ST_OK || p->n_rows == 0)
            return s;
        s = post_batch(p, why);
    } while (s == ST_OK && !is_past_deadline(p));
    return s;
}

static void update_ready(struct poster *p)
{
    struct journal_stats stats;

    if (atomic_load(&p->ready))
        return;
    journal_stats(p->journal, &stats);
    /* Everything up to replayed_seq: posted now, or found posted by replay. */
    if (stats.unposted == 0 || p->posted_seq >= stats.replayed_seq)
        atomic_store(&p->ready, true);
}

static void note(struct poster *p, enum status s, const struct reason *why)
{
    bool ok = s == ST_OK;

    if (ok)
        p->backoff_ms = 0;
    else
        p->backoff_ms =
            p->backoff_ms == 0 ? BACKOFF_MIN_MS : int64_min(2 * p->backoff_ms, BACKOFF_MAX_MS);
    if (atomic_exchange(&p->ok, ok) == ok)
        return;
    if (ok)
        log_info(NULL, "billing.posting", "rows are being posted");
    else
        log_warn(NULL, "billing.not_posting", "status=%s: %s", status_name(s), why->text);
}

static void work(struct poster *p)
{
    struct reason why = {0};
    enum status s = post_rows(p, &why);

    note(p, s, &why);
    if (s == ST_OK)
        update_ready(p);
}

/* Waits for the next turn; false when stopping. */
static bool wait_turn(struct poster *p)
{
    int64_t ms = int64_max(p->post_ms, p->backoff_ms);
    struct timespec until;
    int rc = 0;
    bool go_on;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&p->lock);
    while (!p->stopping && rc == 0)
        rc = pthread_cond_timedwait(&p->wake, &p->lock, &until);
    go_on = !p->stopping;
    pthread_mutex_unlock(&p->lock);
    return go_on;
}

static void *run(void *arg)
{
    struct poster *p = arg;

    do
        work(p);
    while (wait_turn(p));
    if (!is_past_deadline(p))
        work(p);
    return NULL;
}

static void free_poster(struct poster *p)
{
    pg_close(p->pg);
    buf_dispose(&p->json);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

enum status poster_start(const char *conninfo, int64_t post_ms, struct journal *journal,
                         struct prices *prices, struct poster **out)
{
    struct poster *p = calloc(1, sizeof *p);
    pthread_condattr_t attr;
    enum status s;

    if (p == NULL)
        return ST_NO_MEMORY;
    p->journal = journal;
    p->prices = prices;
    p->post_ms = post_ms;
    p->months[0] = p->months[1] = -1;
    buf_init(&p->json);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    atomic_store(&p->ok, true);
    s = pg_open_lazy(conninfo, &p->pg);
    if (s == ST_OK && pthread_create(&p->thread, NULL, run, p) != 0)
        s = ST_NO_MEMORY;
    if (s != ST_OK) {
        free_poster(p);
        return s;
    }
    pthread_setname_np(p->thread, "poster");
    *out = p;
    return ST_OK;
}

void poster_stop(struct poster *p, int64_t deadline_ms)
{
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    p->deadline_ms = clock_mono_ms() + deadline_ms;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    free_poster(p);
}

bool poster_is_ok(const struct poster *p)
{
    return atomic_load(&p->ok);
}

bool poster_is_ready(const struct poster *p)
{
    return atomic_load(&p->ready);
}

uint64_t poster_posted(const struct poster *p)
{
    return atomic_load(&p->posted);
}
