/* The page of /metrics in Prometheus' text format (version 0.0.4). Knows no server: it is given
 * everything. Any thread. */
#ifndef API_METRICS_TEXT_H
#define API_METRICS_TEXT_H

#include "api/metrics.h"
#include "base/buf.h"
#include "billing/billing.h"
#include "engine/engine.h"

/* Borrowed for the call. */
struct metrics_view {
    const struct metrics *const *loops; /* added up */
    size_t n_loops;                     /* > 0 */
    const struct engine_stats *engine;  /* of all models together */
    const struct engine_stats *engines; /* of each, in the loops' order */
    const uint32_t *context_tokens;     /* as engines: of the revision that is served; 0: none */
    const struct billing_stats *billing;
    uint64_t answer_bytes; /* that wait for clients */
    int64_t wall_ms;
};

/* Appends the page. Each metric's series follow its HELP and TYPE lines. The five gauges that
 * routers read (running, waiting, KV usage, cache_config_info, lora_requests_info) are one series
 * each, of all models together (KV usage: pages in use over all pages); their model_name is the
 * first model's, as vLLM's is the first of its served names. */
void metrics_text_put(struct buf *b, const struct metrics_view *v);

#endif
