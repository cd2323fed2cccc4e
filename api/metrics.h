/* What one loop counts: requests, and per model what vLLM's dashboards and routers look for, under
 * vLLM's names. Written by the loop's thread alone, read by any. No label comes from outside:
 * routes, statuses and kinds are our own tables, models those that are served; so the number of
 * series is bounded, whatever clients send. */
#ifndef API_METRICS_H
#define API_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "api/histogram.h"
#include "base/status.h"

struct engine_model;

/* enum name, metric, label ("" for none), help (of the first row of a metric) */
#define METRIC_TABLE(X)                                                                            \
    X(ADMITTED, "sluice_admitted_total", "", "Requests admitted by the limits.")                   \
    X(LIMITED, "sluice_limited_total", "", "Requests refused by a limit (429).")                   \
    X(FAILED, "sluice_failed_total", "", "Admitted requests that failed.")                         \
    X(CLIENT_GONE, "sluice_client_gone_total", "", "Clients that left before their answer.")       \
    X(ANSWERS_ENDED, "sluice_answers_ended_total", "",                                             \
      "Answers ended because too many bytes of answers waited for clients.")                       \
    X(JOURNAL_FAILED, "sluice_journal_failed_total", "", "Usage records that were not written.")   \
    X(BILLED_PROMPT, "sluice_billed_tokens_total", "kind=\"prompt\"", "Tokens billed.")            \
    X(BILLED_CACHED, "sluice_billed_tokens_total", "kind=\"cached\"", "")                          \
    X(BILLED_OUTPUT, "sluice_billed_tokens_total", "kind=\"output\"", "")                          \
    X(CONNECTIONS_REFUSED, "sluice_connections_refused_total", "",                                 \
      "Connections closed because the loop has its fill.")                                         \
    X(CONNECTIONS_SHUT, "sluice_connections_shut_total", "",                                       \
      "Connections cut: they flooded, or did not read.")

enum metric {
#define METRIC_ENUM(name, metric, label, help) METRIC_##name,
    METRIC_TABLE(METRIC_ENUM)
#undef METRIC_ENUM
        METRIC_COUNT
};

/* The same, of a model; labels follow the model's. The finished reasons are those of vLLM's
 * FinishReason that occur here. */
#define MODEL_METRIC_TABLE(X)                                                                      \
    X(PROMPT_TOKENS, "vllm:prompt_tokens_total", "",                                               \
      "Prompt tokens of requests whose prefill is complete, cached ones included.")                \
    X(GENERATION_TOKENS, "vllm:generation_tokens_total", "", "Output tokens.")                     \
    X(ENDED_STOP, "vllm:request_success_total", ",finished_reason=\"stop\"",                       \
      "Requests that ended, by reason; error: those that failed.")                                 \
    X(ENDED_LENGTH, "vllm:request_success_total", ",finished_reason=\"length\"", "")               \
    X(ENDED_ABORT, "vllm:request_success_total", ",finished_reason=\"abort\"", "")                 \
    X(ENDED_ERROR, "vllm:request_success_total", ",finished_reason=\"error\"", "")

enum model_metric {
#define MODEL_METRIC_ENUM(name, metric, label, help) MODEL_METRIC_##name,
    MODEL_METRIC_TABLE(MODEL_METRIC_ENUM)
#undef MODEL_METRIC_ENUM
        MODEL_METRIC_COUNT
};

/* enum name, metric, scale, help. Values are microseconds where the metric says seconds, else
 * tokens. */
#define MODEL_HISTOGRAM_TABLE(X)                                                                   \
    X(FIRST_TOKEN, "vllm:time_to_first_token_seconds", SCALE_FIRST_TOKEN,                          \
      "From a request's arrival to its first token.")                                              \
    X(TOKEN_GAP, "vllm:inter_token_latency_seconds", SCALE_TOKEN_GAP,                              \
      "Between a token and the one before it.")                                                    \
    X(E2E, "vllm:e2e_request_latency_seconds", SCALE_REQUEST,                                      \
      "From a request's arrival to its end in the engine.")                                        \
    X(QUEUE, "vllm:request_queue_time_seconds", SCALE_REQUEST, "In the engine's queue.")           \
    X(PREFILL, "vllm:request_prefill_time_seconds", SCALE_REQUEST,                                 \
      "From the queue's end to the prompt's.")                                                     \
    X(DECODE, "vllm:request_decode_time_seconds", SCALE_REQUEST,                                   \
      "From the prompt's end to the last token.")                                                  \
    X(REQUEST_PROMPT, "vllm:request_prompt_tokens", SCALE_TOKENS, "Prompt tokens of a request.")   \
    X(REQUEST_GENERATION, "vllm:request_generation_tokens", SCALE_TOKENS,                          \
      "Output tokens of a request.")

enum model_histogram {
#define MODEL_HISTOGRAM_ENUM(name, metric, scale, help) MODEL_HISTOGRAM_##name,
    MODEL_HISTOGRAM_TABLE(MODEL_HISTOGRAM_ENUM)
#undef MODEL_HISTOGRAM_ENUM
        MODEL_HISTOGRAM_COUNT
};

enum metric_scale { SCALE_FIRST_TOKEN, SCALE_TOKEN_GAP, SCALE_REQUEST, SCALE_TOKENS, SCALE_COUNT };

extern const struct histogram_scale metric_scales[SCALE_COUNT];

#define METRIC_ROUTES_MAX   16
#define METRIC_STATUSES_MAX 24

struct model_metrics {
    const struct engine_model *model;
    _Atomic uint64_t counters[MODEL_METRIC_COUNT];
    struct histogram histograms[MODEL_HISTOGRAM_COUNT];
};

struct metrics {
    _Atomic uint64_t counters[METRIC_COUNT];
    /* by route (index into routes, the last: none) and HTTP status (index into a table) */
    _Atomic uint64_t requests[METRIC_ROUTES_MAX][METRIC_STATUSES_MAX];
    /* gauges that the loop publishes for others */
    _Atomic uint64_t live;
    _Atomic uint64_t connections;
    _Atomic uint64_t unsettled;
    struct model_metrics *models; /* in the engine's order; as many in every loop */
    size_t n_models;
};

/* Before the loop's thread starts, so that others may read. *m is zeroed; the caller fills in each
 * `model` (borrowed). */
MUST_CHECK enum status metrics_init(struct metrics *m, size_t n_models);
void metrics_dispose(struct metrics *m);

/* The writer's thread. */
static inline void metrics_add(struct metrics *m, enum metric which, uint64_t n)
{
    atomic_fetch_add_explicit(&m->counters[which], n, memory_order_relaxed);
}

void metrics_request(struct metrics *m, size_t route, int http_status);
/* Where what happens to requests for a model (one of the engine's) is counted. */
struct model_metrics *metrics_of_model(struct metrics *m, const struct engine_model *model);

/* The HTTP status at an index of `requests`; 0: any other; -1: past the end. */
int metrics_status_at(size_t i);

#endif
