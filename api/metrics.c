#include "api/metrics.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "api/loop_thread.h"
#include "api/routes.h"
#include "base/size.h"

static const int statuses[] = {200, 400, 401, 403, 404, 405, 413, 429, 499, 500, 503, 504};

static_assert(COUNT_OF(statuses) < METRIC_STATUSES_MAX, "one more is for any other");

static size_t status_index(int http_status)
{
    size_t i = 0;

    while (i < COUNT_OF(statuses) && statuses[i] != http_status)
        i++;
    return i;
}

void metrics_request(struct metrics *m, size_t route, int http_status)
{
    assert(route < METRIC_ROUTES_MAX);
    atomic_fetch_add_explicit(&m->requests[route][status_index(http_status)], 1,
                              memory_order_relaxed);
}

/* ---- the text ---- */

static const struct {
    const char *name, *label, *help;
} counters[] = {
#define METRIC_ROW(name, metric, label, help) [METRIC_##name] = {metric, label, help},
    METRIC_TABLE(METRIC_ROW)
#undef METRIC_ROW
};

static void put_type(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(struct buf *b, const char *name, const char *type, const char *help, uint64_t v)
{
    put_type(b, name, type, help);
    buf_printf(b, "%s %" PRIu64 "\n", name, v);
}

/* Sum of one counter over the loops; `offset` is its place in struct metrics. */
static uint64_t sum(struct api *a, size_t offset)
{
    uint64_t total = 0;

    for (unsigned i = 0; i < a->cfg.n_loops; i++) {
        char *at = (char *)&a->loops[i].metrics + offset;

        total += atomic_load_explicit((_Atomic uint64_t *)(void *)at, memory_order_relaxed);
    }
    return total;
}

static void put_counters(struct buf *b, struct api *a)
{
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const char *label = counters[i].label;

        if (i == 0 || strcmp(counters[i].name, counters[i - 1].name) != 0)
            put_type(b, counters[i].name, "counter", counters[i].help);
        buf_printf(b, "%s%s%s%s %" PRIu64 "\n", counters[i].name, label[0] != '\0' ? "{" : "",
                   label, label[0] != '\0' ? "}" : "",
                   sum(a, offsetof(struct metrics, counters) + i * sizeof(_Atomic uint64_t)));
    }
}

static void put_request_row(struct buf *b, size_t route, size_t status, uint64_t n)
{
    const struct route *r = route_at(route);

    buf_printf(b, "sluice_requests_total{route=\"%s\",status=\"", r != NULL ? r->path : "none");
    if (status < COUNT_OF(statuses))
        buf_printf(b, "%d", statuses[status]);
    else
        buf_puts(b, "other");
    buf_printf(b, "\"} %" PRIu64 "\n", n);
}

static void put_requests(struct buf *b, struct api *a)
{
    put_type(b, "sluice_requests_total", "counter", "Requests by route and HTTP status.");
    for (size_t i = 0; i <= route_index(NULL); i++) {
        for (size_t k = 0; k <= COUNT_OF(statuses); k++) {
            size_t at = (i * METRIC_STATUSES_MAX + k) * sizeof(_Atomic uint64_t);
            uint64_t n = sum(a, offsetof(struct metrics, requests) + at);

            if (n > 0)
                put_request_row(b, i, k, n);
        }
    }
}

static void put_engine(struct buf *b, const struct engine_stats *s)
{
    put_one(b, "vllm:num_requests_running", "gauge", "Sequences in the batch.", s->running);
    put_one(b, "vllm:num_requests_waiting", "gauge", "Sequences that wait for the batch.",
            s->waiting);
    put_type(b, "vllm:kv_cache_usage_perc", "gauge", "KV pages in use; 1 is all.");
    buf_printf(b, "vllm:kv_cache_usage_perc %.6f\n",
               s->pages_total > 0 ? (double)s->pages_used / s->pages_total : 0.0);
    put_one(b, "vllm:prompt_tokens_total", "counter", "Prompt tokens computed.", s->prompt_tokens);
    put_one(b, "vllm:generation_tokens_total", "counter", "Tokens generated.", s->output_tokens);
    put_one(b, "vllm:num_preemptions_total", "counter", "Sequences preempted.", s->preemptions);
    put_one(b, "sluice_engine_up", "gauge", "The engine process is connected.", s->connected);
    put_one(b, "sluice_engine_steps_total", "counter", "Steps of the engine.", s->steps);
    put_one(b, "sluice_engine_rows_max", "gauge", "Most sequences seen in one step.", s->rows_max);
}

static void put_billing(struct buf *b, const struct billing_stats *s)
{
    put_one(b, "sluice_journal_admitted_total", "counter", "Admission records written.",
            s->admitted);
    put_one(b, "sluice_journal_finished_total", "counter", "Final records written.", s->finished);
    put_one(b, "sluice_journal_replayed_total", "counter", "Records replayed at start.",
            s->replayed);
    put_one(b, "sluice_journal_commits_total", "counter", "Group commits.", s->commits);
    put_one(b, "sluice_usage_posted_total", "counter", "Usage rows in Postgres.", s->posted);
    put_one(b, "sluice_usage_unposted", "gauge", "Usage rows not in Postgres yet.", s->unposted);
    put_one(b, "sluice_journal_up", "gauge", "The journal can be written.", s->journal_ok);
    put_one(b, "sluice_postgres_up", "gauge", "Postgres takes usage rows.", s->postgres_ok);
}

void metrics_put(struct buf *b, struct api *a)
{
    struct engine_stats engine;
    struct billing_stats billing;

    engine_stats(a->parts.engine, &engine);
    billing_stats(a->parts.billing, &billing);
    put_engine(b, &engine);
    put_counters(b, a);
    put_requests(b, a);
    put_billing(b, &billing);
    put_one(b, "sluice_requests_in_flight", "gauge", "Requests in hand.",
            sum(a, offsetof(struct metrics, live)));
    put_one(b, "sluice_connections", "gauge", "Open connections.",
            sum(a, offsetof(struct metrics, connections)));
    put_one(b, "sluice_unsettled", "gauge", "Settlements that Redis has not acknowledged.",
            sum(a, offsetof(struct metrics, unsettled)));
}
