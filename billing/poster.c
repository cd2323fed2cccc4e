#include "billing/poster.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "billing/dead_letter.h"
#include "billing/usage_insert.h"

/* About 300 KB of JSON: large enough that the commit no longer counts, small enough to repeat. */
#define BATCH_ROWS 500
/* A change of price is seen this late at most, unless it was entered ahead of its time. */
#define PRICES_MS      2000
#define BACKOFF_MIN_MS 100
#define BACKOFF_MAX_MS 2000

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
    size_t n_rows, first; /* those before `first` are dealt with */
    size_t at_once;       /* how many go into one transaction: fewer where one of them is refused */
    struct buf json;
    int months[2]; /* whose partitions are known to be there: years * 12 + months */
    uint64_t posted_seq;
    int64_t prices_due_ms, backoff_ms;
    atomic_bool ok, ready;
    atomic_uint_least64_t posted, set_aside;
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

static void put_batch(struct poster *p, const struct usage_row *rows, size_t n)
{
    buf_clear(&p->json);
    buf_putc(&p->json, '[');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_putc(&p->json, ',');
        usage_row_put_json(&p->json, &rows[i]);
    }
    buf_putc(&p->json, ']');
}

static enum status insert_batch(struct poster *p, const struct usage_row *rows, size_t n,
                                struct reason *why)
{
    enum status s = pg_begin(p->pg, why);

    if (s != ST_OK)
        return s;
    for (size_t i = 0; s == ST_OK && i < n; i++)
        s = ensure_partition(p, rows[i].admission.admitted_at_us, why);
    if (s == ST_OK)
        s = usage_insert(p->pg, buf_cstr(&p->json), why);
    if (s == ST_OK)
        return pg_commit(p->pg, why);
    pg_rollback(p->pg);
    /* What was made in that transaction is not there. */
    p->months[0] = p->months[1] = -1;
    return s;
}

/* The next n rows need nothing more from the journal. */
static void settle(struct poster *p, size_t n)
{
    p->first += n;
    p->posted_seq = p->rows[p->first - 1].seq;
    journal_posted(p->journal, p->posted_seq, n);
}

/* The next row alone was refused. It goes on from Postgres' side of the journal, where nobody waits
 * behind it. */
static enum status set_aside(struct poster *p, const struct reason *refusal, struct reason *why)
{
    const struct usage_row *row = &p->rows[p->first];
    char name[sizeof "req_" + ID_HEX_BYTES] = "req_";
    enum status s;

    buf_clear(&p->json);
    usage_row_put_json(&p->json, row);
    if (p->json.failed)
        return ST_NO_MEMORY;
    s = dead_letter_put(p->pg, &row->admission.id, &p->json, refusal->text, why);
    if (s != ST_OK)
        return s;
    id_to_hex(&row->admission.id, name + strlen(name));
    log_error(name, "billing.dead_letter", "%s", refusal->text);
    atomic_fetch_add(&p->set_aside, 1);
    settle(p, 1);
    return ST_OK;
}

/* Posts the next rows. Where one of them is refused, next time half as many are tried, down to that
 * one alone, which is set aside; then twice as many again. */
static enum status post_batch(struct poster *p, struct reason *why)
{
    const struct usage_row *rows = p->rows + p->first;
    size_t left = p->n_rows - p->first;
    size_t n = p->at_once < left ? p->at_once : left;
    struct reason refusal = {.text = ""};
    enum status s;

    put_batch(p, rows, n);
    if (p->json.failed)
        return ST_NO_MEMORY;
    s = insert_batch(p, rows, n, &refusal);
    if (s == ST_OK) {
        atomic_fetch_add(&p->posted, n);
        settle(p, n);
        p->at_once = p->at_once < BATCH_ROWS / 2 ? 2 * p->at_once : BATCH_ROWS;
        return ST_OK;
    }
    if (!usage_is_refused(p->pg, s))
        return fail(why, s, "%s", refusal.text);
    if (n == 1)
        return set_aside(p, &refusal, why);
    p->at_once = n / 2;
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

static enum status take_rows(struct poster *p, struct reason *why)
{
    p->first = p->n_rows = 0;
    return row_source_take(journal_rows(p->journal), p->rows, BATCH_ROWS, &p->n_rows, why);
}

/* Everything that is there to post, batch by batch; a long backlog keeps no price from being seen.
 */
static enum status post_rows(struct poster *p, struct reason *why)
{
    enum status s;

    do {
        s = refresh_prices(p, why);
        if (s == ST_OK && p->first == p->n_rows)
            s = take_rows(p, why);
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
    p->at_once = BATCH_ROWS;
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

uint64_t poster_set_aside(const struct poster *p)
{
    return atomic_load(&p->set_aside);
}
