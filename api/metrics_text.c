#include "api/metrics_text.h"

#include <inttypes.h>
#include <string.h>

#include "api/routes.h"
#include "base/size.h"

/* ---- lines ---- */

static void put_family(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(struct buf *b, const char *name, const char *type, const char *help, uint64_t v)
{
    put_family(b, name, type, help);
    buf_printf(b, "%s %" PRIu64 "\n", name, v);
}

/* The format's three escapes. */
static void put_escaped(struct buf *b, const char *s)
{
    for (;;) {
        size_t plain = strcspn(s, "\\\"\n");

        buf_append(b, s, plain);
        s += plain;
        if (*s == '\0')
            return;
        buf_putc(b, '\\');
        buf_putc(b, *s == '\n' ? 'n' : *s);
        s++;
    }
}

/* One engine process has a model, vLLM's data-parallel index is 0. Leaves the braces open. */
static void put_model_labels(struct buf *b, const struct engine_model *model)
{
    buf_puts(b, "{model_name=\"");
    put_escaped(b, model->id);
    buf_puts(b, "\",engine=\"0\"");
}

static const struct engine_model *first_model(const struct metrics_view *v)
{
    return v->loops[0]->models[0].model;
}

/* A family of one series, of the first model. */
static void put_of_first(struct buf *b, const struct metrics_view *v, const char *name,
                         const char *type, const char *help, uint64_t value)
{
    put_family(b, name, type, help);
    buf_puts(b, name);
    put_model_labels(b, first_model(v));
    buf_printf(b, "} %" PRIu64 "\n", value);
}

static uint64_t load(const _Atomic uint64_t *v)
{
    return atomic_load_explicit(v, memory_order_relaxed);
}

/* ---- the engine ---- */

static void put_kv_usage(struct buf *b, const struct metrics_view *v)
{
    const struct engine_stats *s = v->engine;

    put_family(b, "vllm:kv_cache_usage_perc", "gauge", "KV pages in use; 1 is all.");
    buf_puts(b, "vllm:kv_cache_usage_perc");
    put_model_labels(b, first_model(v));
    buf_printf(b, "} %.6f\n", s->pages_total > 0 ? (double)s->pages_used / s->pages_total : 0.0);
}

/* What routers read; the two info gauges carry their facts as labels. The time of the adapters'
 * line is that of the page: readers take the newest. */
static void put_router_gauges(struct buf *b, const struct metrics_view *v)
{
    const struct engine_stats *s = v->engine;

    put_of_first(b, v, "vllm:num_requests_running", "gauge", "Requests in the batch.", s->running);
    put_of_first(b, v, "vllm:num_requests_waiting", "gauge", "Requests that wait for the batch.",
                 s->waiting);
    put_kv_usage(b, v);
    put_family(b, "vllm:cache_config_info", "gauge", "The KV cache: tokens of a page, pages.");
    buf_printf(b,
               "vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%" PRIu32
               "\",engine=\"0\"} 1\n",
               ENGINE_PAGE_TOKENS, s->pages_total);
    put_family(b, "vllm:lora_requests_info", "gauge", "Adapters in use; the value is the time.");
    buf_printf(b,
               "vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\","
               "waiting_lora_adapters=\"\"} %" PRId64 ".%03d\n",
               v->wall_ms / 1000, (int)(v->wall_ms % 1000));
}

/* field of struct engine_stats, metric, type, help */
#define ENGINE_TABLE(X)                                                                            \
    X(preemptions, "vllm:num_preemptions_total", "counter", "Requests preempted.")                 \
    X(prefix_query_tokens, "vllm:prefix_cache_queries_total", "counter",                           \
      "Prompt tokens looked up in the prefix cache.")                                              \
    X(prefix_hit_tokens, "vllm:prefix_cache_hits_total", "counter",                                \
      "Prompt tokens found in the prefix cache.")                                                  \
    X(not_finite, "vllm:corrupted_requests_total", "counter",                                      \
      "Requests that failed for logits that were not finite.")                                     \
    X(connected, "sluice_engine_up", "gauge", "The model's engine process is connected.")          \
    X(asleep, "sluice_engine_asleep", "gauge",                                                     \
      "The model was unloaded while idle; the next request loads it.")                             \
    X(running, "sluice_engine_running", "gauge", "Requests in the batch.")                         \
    X(waiting, "sluice_engine_waiting", "gauge", "Requests that wait for the batch.")              \
    X(steps, "sluice_engine_steps_total", "counter", "Steps of the engine.")                       \
    X(rows_max, "sluice_engine_rows_max", "gauge", "Most sequences seen in one step.")             \
    X(pages_total, "sluice_engine_kv_pages", "gauge", "KV pages.")                                 \
    X(pages_used, "sluice_engine_kv_pages_used", "gauge", "KV pages in use.")                      \
    X(prompt_tokens, "sluice_engine_prompt_tokens_total", "counter",                               \
      "Prompt tokens whose prefill is complete, cached ones and each choice of n included.")       \
    X(output_tokens, "sluice_engine_output_tokens_total", "counter", "Tokens sampled.")

enum engine_metric {
#define ENGINE_ENUM(field, metric, type, help) ENGINE_METRIC_##field,
    ENGINE_TABLE(ENGINE_ENUM)
#undef ENGINE_ENUM
        ENGINE_METRIC_COUNT
};

static const struct {
    const char *name, *type, *help;
} engine_rows[] = {
#define ENGINE_ROW(field, metric, type, help) [ENGINE_METRIC_##field] = {metric, type, help},
    ENGINE_TABLE(ENGINE_ROW)
#undef ENGINE_ROW
};

static uint64_t engine_value(const struct engine_stats *s, enum engine_metric which)
{
    const uint64_t values[] = {
#define ENGINE_VALUE(field, metric, type, help) [ENGINE_METRIC_##field] = s->field,
        ENGINE_TABLE(ENGINE_VALUE)
#undef ENGINE_VALUE
    };

    return values[which];
}

static void put_engines(struct buf *b, const struct metrics_view *v)
{
    for (size_t i = 0; i < ENGINE_METRIC_COUNT; i++) {
        put_family(b, engine_rows[i].name, engine_rows[i].type, engine_rows[i].help);
        for (size_t model = 0; model < v->loops[0]->n_models; model++) {
            buf_puts(b, engine_rows[i].name);
            put_model_labels(b, v->loops[0]->models[model].model);
            buf_printf(b, "} %" PRIu64 "\n",
                       engine_value(&v->engines[model], (enum engine_metric)i));
        }
    }
}

/* ---- models ---- */

static const struct counter_row {
    const char *name, *label, *help;
} model_counters[] =
    {
#define MODEL_METRIC_ROW(name, metric, label, help) [MODEL_METRIC_##name] = {metric, label, help},
        MODEL_METRIC_TABLE(MODEL_METRIC_ROW)
#undef MODEL_METRIC_ROW
},
  loop_counters[] = {
#define METRIC_ROW(name, metric, label, help) [METRIC_##name] = {metric, label, help},
      METRIC_TABLE(METRIC_ROW)
#undef METRIC_ROW
};

static const struct histogram_row {
    const char *name, *help;
    enum metric_scale scale;
} model_histograms[] = {
#define MODEL_HISTOGRAM_ROW(name, metric, scale, help)                                             \
    [MODEL_HISTOGRAM_##name] = {metric, help, scale},
    MODEL_HISTOGRAM_TABLE(MODEL_HISTOGRAM_ROW)
#undef MODEL_HISTOGRAM_ROW
};

/* Rows of one metric follow each other. */
static void put_row_family(struct buf *b, const struct counter_row *rows, size_t i)
{
    if (i == 0 || strcmp(rows[i].name, rows[i - 1].name) != 0)
        put_family(b, rows[i].name, "counter", rows[i].help);
}

static void put_model_counter(struct buf *b, const struct metrics_view *v, size_t i, size_t model)
{
    uint64_t total = 0;

    for (size_t k = 0; k < v->n_loops; k++)
        total += load(&v->loops[k]->models[model].counters[i]);
    buf_puts(b, model_counters[i].name);
    put_model_labels(b, v->loops[0]->models[model].model);
    buf_printf(b, "%s} %" PRIu64 "\n", model_counters[i].label, total);
}

/* All series of a metric stand together: its rows, and of each row the models. */
static void put_model_counters(struct buf *b, const struct metrics_view *v)
{
    for (size_t i = 0; i < MODEL_METRIC_COUNT; i++) {
        put_row_family(b, model_counters, i);
        for (size_t model = 0; model < v->loops[0]->n_models; model++)
            put_model_counter(b, v, i, model);
    }
}

/* Microseconds as decimal seconds, without an exponent; "1.0" and "0.25" as Prometheus' Python
 * client writes bounds, so that le joins with vLLM's series. */
static void put_seconds(struct buf *b, uint64_t us)
{
    uint64_t fraction = us % 1000000;
    int digits = 6;

    while (digits > 1 && fraction % 10 == 0) {
        fraction /= 10;
        digits--;
    }
    buf_printf(b, "%" PRIu64 ".%0*" PRIu64, us / 1000000, digits, fraction);
}

static void put_value(struct buf *b, enum metric_scale scale, uint64_t v)
{
    if (scale == SCALE_TOKENS)
        buf_printf(b, "%" PRIu64 ".0", v);
    else
        put_seconds(b, v);
}

static void put_sample(struct buf *b, const char *name, const char *suffix,
                       const struct engine_model *model)
{
    buf_puts(b, name);
    buf_puts(b, suffix);
    put_model_labels(b, model);
}

/* Bounds of tokens above the model's context hold no more than the one below: left out. */
static unsigned n_bounds(enum metric_scale scale, uint32_t context_tokens)
{
    unsigned n = metric_scales[scale].n;

    while (scale == SCALE_TOKENS && n > 1 &&
           metric_scales[scale].bounds[n - 1] > (int64_t)context_tokens)
        n--;
    return n;
}

static uint64_t count_of(const struct histogram_sum *h)
{
    uint64_t n = 0;

    for (size_t i = 0; i < COUNT_OF(h->buckets); i++)
        n += h->buckets[i];
    return n;
}

static void put_histogram(struct buf *b, const struct histogram_row *row,
                          const struct engine_model *model, uint32_t context_tokens,
                          const struct histogram_sum *h)
{
    unsigned n = n_bounds(row->scale, context_tokens);
    uint64_t below = 0, count = count_of(h);

    for (unsigned i = 0; i < n; i++) {
        below += h->buckets[i];
        put_sample(b, row->name, "_bucket", model);
        buf_puts(b, ",le=\"");
        put_value(b, row->scale, (uint64_t)metric_scales[row->scale].bounds[i]);
        buf_printf(b, "\"} %" PRIu64 "\n", below);
    }
    put_sample(b, row->name, "_bucket", model);
    buf_printf(b, ",le=\"+Inf\"} %" PRIu64 "\n", count);
    put_sample(b, row->name, "_count", model);
    buf_printf(b, "} %" PRIu64 "\n", count);
    put_sample(b, row->name, "_sum", model);
    buf_puts(b, "} ");
    put_value(b, row->scale, h->sum);
    buf_putc(b, '\n');
}

static void put_model_histograms(struct buf *b, const struct metrics_view *v)
{
    for (size_t i = 0; i < MODEL_HISTOGRAM_COUNT; i++) {
        const struct histogram_row *row = &model_histograms[i];

        put_family(b, row->name, "histogram", row->help);
        for (size_t model = 0; model < v->loops[0]->n_models; model++) {
            struct histogram_sum sum = {0};

            for (size_t k = 0; k < v->n_loops; k++)
                histogram_add(&v->loops[k]->models[model].histograms[i], &sum);
            put_histogram(b, row, v->loops[0]->models[model].model, v->context_tokens[model], &sum);
        }
    }
}

/* ---- the gateway ---- */

static void put_loop_counters(struct buf *b, const struct metrics_view *v)
{
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const char *label = loop_counters[i].label;
        uint64_t total = 0;

        for (size_t k = 0; k < v->n_loops; k++)
            total += load(&v->loops[k]->counters[i]);
        put_row_family(b, loop_counters, i);
        buf_printf(b, "%s%s%s%s %" PRIu64 "\n", loop_counters[i].name, label[0] != '\0' ? "{" : "",
                   label, label[0] != '\0' ? "}" : "", total);
    }
}

static void put_request_row(struct buf *b, size_t route, int http_status, uint64_t n)
{
    const struct route *r = route_at(route);

    buf_printf(b, "sluice_requests_total{route=\"%s\",status=\"", r != NULL ? r->path : "none");
    if (http_status != 0)
        buf_printf(b, "%d", http_status);
    else
        buf_puts(b, "other");
    buf_printf(b, "\"} %" PRIu64 "\n", n);
}

static void put_requests(struct buf *b, const struct metrics_view *v)
{
    put_family(b, "sluice_requests_total", "counter", "Requests by route and HTTP status.");
    for (size_t route = 0; route <= route_index(NULL); route++) {
        for (size_t i = 0; metrics_status_at(i) != -1; i++) {
            uint64_t n = 0;

            for (size_t k = 0; k < v->n_loops; k++)
                n += load(&v->loops[k]->requests[route][i]);
            if (n > 0)
                put_request_row(b, route, metrics_status_at(i), n);
        }
    }
}

static void put_loop_gauges(struct buf *b, const struct metrics_view *v)
{
    uint64_t live = 0, connections = 0, unsettled = 0;

    for (size_t k = 0; k < v->n_loops; k++) {
        live += load(&v->loops[k]->live);
        connections += load(&v->loops[k]->connections);
        unsettled += load(&v->loops[k]->unsettled);
    }
    put_one(b, "sluice_requests_in_flight", "gauge", "Requests in hand.", live);
    put_one(b, "sluice_connections", "gauge", "Open connections.", connections);
    put_one(b, "sluice_unsettled", "gauge", "Settlements that Redis has not acknowledged.",
            unsettled);
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
    put_one(b, "sluice_usage_dead_letters_total", "counter",
            "Usage rows that Postgres refused, set aside.", s->set_aside);
    put_one(b, "sluice_usage_unposted", "gauge", "Usage rows not in Postgres yet.", s->unposted);
    put_one(b, "sluice_journal_up", "gauge", "The journal can be written.", s->journal_ok);
    put_one(b, "sluice_postgres_up", "gauge", "Postgres takes usage rows.", s->postgres_ok);
}

void metrics_text_put(struct buf *b, const struct metrics_view *v)
{
    put_router_gauges(b, v);
    put_model_counters(b, v);
    put_model_histograms(b, v);
    put_engines(b, v);
    put_loop_counters(b, v);
    put_requests(b, v);
    put_loop_gauges(b, v);
    put_one(b, "sluice_answer_bytes", "gauge", "Bytes of answers that wait for their clients.",
            v->answer_bytes);
    put_billing(b, v->billing);
}
