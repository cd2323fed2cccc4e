#include "billing/usage_query.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "billing/usage_row.h"

enum { GROUP_PROJECT = 1, GROUP_KEY = 2, GROUP_MODEL = 4, GROUP_ALL = 7 };

/* OpenAI's largest page: 1,440 buckets of a minute. */
#define BUCKETS_MAX 1440
/* Groups of all buckets of a page; more are refused, not cut. About 4 MB of JSON. */
#define RESULTS_MAX 10000
#define TIME_MAX_S  (USAGE_TIME_MAX_US / 1000000)
#define PAGE_PREFIX "page_"

/* $1 tenant, $2 project (0: all), $3 and $4 the range in Unix seconds, $5 seconds of a bucket, $6
 * what to group by, $7 most rows. Every admitted request counts, however it ended: each is one row.
 */
static const char usage_sql[] =
    "SELECT u.bucket, 'proj_' || u.project_id, coalesce(k.public_id, u.key_id::text), u.model,"
    "       u.prompt, u.cached, u.output, u.requests"
    "  FROM (SELECT floor(extract(epoch FROM e.admitted_at) / $5::bigint)::bigint * $5::bigint"
    "               AS bucket,"
    "               CASE WHEN $6::int & 1 <> 0 THEN e.project_id END AS project_id,"
    "               CASE WHEN $6::int & 2 <> 0 THEN e.key_id END AS key_id,"
    "               CASE WHEN $6::int & 4 <> 0 THEN e.model END AS model,"
    "               sum(e.prompt_tokens)::bigint AS prompt,"
    "               sum(e.cached_tokens)::bigint AS cached,"
    "               sum(e.output_tokens)::bigint AS output, count(*) AS requests"
    "          FROM usage_events e"
    "         WHERE ($1::bigint = 0 OR e.tenant_id = $1::bigint)"
    "           AND ($2::bigint = 0 OR e.project_id = $2::bigint)"
    "           AND e.admitted_at >= to_timestamp($3::bigint)"
    "           AND e.admitted_at < to_timestamp($4::bigint)"
    "         GROUP BY 1, 2, 3, 4) u"
    "  LEFT JOIN api_keys k ON k.id = u.key_id"
    " ORDER BY u.bucket, u.project_id, u.key_id, u.model LIMIT $7::bigint";

/* ---- which buckets ---- */

static int64_t first_bucket(const struct usage_query *q)
{
    int64_t at = q->page_s != 0 ? q->page_s : q->start_s;

    return at - at % q->bucket_s;
}

static int64_t page_end(const struct usage_query *q)
{
    int64_t first = first_bucket(q);
    int64_t n = (q->end_s - first + q->bucket_s - 1) / q->bucket_s;

    return first + int64_min(n, q->limit) * q->bucket_s;
}

static enum status check(const struct usage_query *q, struct reason *why)
{
    if (q->start_s < 0 || q->start_s > TIME_MAX_S)
        return fail_param(why, ST_INVALID, "start_time", "start_time is out of range");
    if (q->end_s <= q->start_s || q->end_s > TIME_MAX_S)
        return fail_param(why, ST_INVALID, "end_time", "end_time must be after start_time");
    if (q->bucket_s != 60 && q->bucket_s != 3600 && q->bucket_s != 86400)
        return fail_param(why, ST_INVALID, "bucket_width", "bucket_width must be 1m, 1h or 1d");
    if (q->limit < 1 || q->limit > BUCKETS_MAX)
        return fail_param(why, ST_INVALID, "limit", "limit must be between 1 and %d", BUCKETS_MAX);
    if ((q->group_by & ~(unsigned)GROUP_ALL) != 0)
        return fail_param(why, ST_INVALID, "group_by", "group_by is not known");
    if (q->page_s != 0 && (q->page_s < q->start_s || q->page_s >= q->end_s))
        return fail_param(why, ST_INVALID, "page", "page does not belong to this query");
    return ST_OK;
}

bool usage_page_parse(const char *s, int64_t *page_s)
{
    int64_t v = 0;

    if (strncmp(s, PAGE_PREFIX, strlen(PAGE_PREFIX)) != 0)
        return false;
    s += strlen(PAGE_PREFIX);
    if (s[0] < '1' || s[0] > '9')
        return false;
    for (; *s >= '0' && *s <= '9' && v <= TIME_MAX_S; s++)
        v = 10 * v + (*s - '0');
    if (*s != '\0' || v > TIME_MAX_S)
        return false;
    *page_s = v;
    return true;
}

/* ---- the body ---- */

static void put_count(struct buf *b, const char *name, int64_t v)
{
    buf_printf(b, "\"%s\":%" PRId64 ",", name, v);
}

/* Null where it isn't grouped by this. */
static void put_text(struct buf *b, const char *name, const char *s)
{
    buf_printf(b, "\"%s\":", name);
    if (s == NULL)
        buf_puts(b, "null");
    else
        json_put_cstr(b, s);
    buf_putc(b, ',');
}

static void put_result(struct buf *b, const struct pg_result *r, int row)
{
    int64_t prompt = pg_int64(r, row, 4), cached = pg_int64(r, row, 5);

    buf_puts(b, "{\"object\":\"organization.usage.completions.result\",");
    put_count(b, "input_tokens", prompt);
    put_count(b, "input_cached_tokens", cached);
    put_count(b, "input_uncached_tokens", prompt - cached);
    put_count(b, "output_tokens", pg_int64(r, row, 6));
    put_count(b, "input_audio_tokens", 0);
    put_count(b, "output_audio_tokens", 0);
    put_count(b, "num_model_requests", pg_int64(r, row, 7));
    put_text(b, "project_id", pg_text(r, row, 1));
    put_text(b, "user_id", NULL);
    put_text(b, "api_key_id", pg_text(r, row, 2));
    put_text(b, "model", pg_text(r, row, 3));
    buf_puts(b, "\"batch\":null,\"service_tier\":null}");
}

/* One bucket with the rows from *row on that belong to it. */
static void put_bucket(struct buf *b, const struct usage_query *q, int64_t start_s,
                       const struct pg_result *r, int *row)
{
    bool first = true;

    buf_printf(b,
               "{\"object\":\"bucket\",\"start_time\":%" PRId64 ",\"end_time\":%" PRId64
               ",\"results\":[",
               start_s, start_s + q->bucket_s);
    for (; *row < pg_rows(r) && pg_int64(r, *row, 0) == start_s; ++*row) {
        if (!first)
            buf_putc(b, ',');
        first = false;
        put_result(b, r, *row);
    }
    buf_puts(b, "]}");
}

static void put_page(struct usage_query *q, const struct pg_result *r)
{
    int64_t first = first_bucket(q), end = page_end(q);
    struct buf *b = &q->body;
    int row = 0;

    buf_puts(b, "{\"object\":\"page\",\"data\":[");
    for (int64_t at = first; at < end; at += q->bucket_s) {
        if (at > first)
            buf_putc(b, ',');
        put_bucket(b, q, at, r, &row);
    }
    if (end < q->end_s)
        buf_printf(b, "],\"has_more\":true,\"next_page\":\"" PAGE_PREFIX "%" PRId64 "\"}", end);
    else
        buf_puts(b, "],\"has_more\":false,\"next_page\":null}");
}

/* ---- running it ---- */

static enum status run_query(struct usage_query *q, struct pg *pg)
{
    char text[7][24];
    const char *params[COUNT_OF(text)];
    const int64_t values[COUNT_OF(text)] = {
        q->tenant_id,
        q->project_id,
        int64_max(first_bucket(q), q->start_s),
        int64_min(page_end(q), q->end_s),
        q->bucket_s,
        q->group_by,
        RESULTS_MAX + 1,
    };
    struct pg_result *r = NULL;
    enum status s;

    for (size_t i = 0; i < COUNT_OF(text); i++) {
        snprintf(text[i], sizeof text[i], "%" PRId64, values[i]);
        params[i] = text[i];
    }
    s = pg_exec(pg, usage_sql, COUNT_OF(text), params, &r, &q->reason);
    if (s != ST_OK)
        return s;
    if (pg_rows(r) > RESULTS_MAX)
        s = fail_param(&q->reason, ST_TOO_LARGE, "group_by",
                       "more than %d results: ask for fewer buckets or group by less", RESULTS_MAX);
    else
        put_page(q, r);
    pg_result_free(r);
    return s == ST_OK && q->body.failed ? ST_NO_MEMORY : s;
}

static void on_message(struct loop_message *m)
{
    struct usage_query *q = CONTAINER_OF(m, struct usage_query, message);

    q->on_done(q);
}

static void on_run(struct work *w, void *thread_state)
{
    struct usage_query *q = CONTAINER_OF(w, struct usage_query, work);

    q->status = run_query(q, thread_state);
    q->message.on_message = on_message;
    loop_post(q->loop, &q->message);
}

enum status usage_query_submit(struct pg_pool *pool, struct usage_query *q, int64_t now_s)
{
    enum status s;

    buf_init(&q->body);
    memset(&q->reason, 0, sizeof q->reason);
    if (q->end_s == 0)
        q->end_s = int64_max(now_s, q->start_s) + 1;
    s = check(q, &q->reason);
    if (s != ST_OK)
        return s;
    q->work.on_run = on_run;
    return pg_pool_submit(pool, &q->work);
}
