/* Counters of one loop, and the text of /metrics. A counter is written by its loop's thread alone
 * and read by any (relaxed atomics). vLLM's names where it has the thing, so that its dashboards
 * and routers work. No label comes from outside: routes, statuses and kinds are our own tables. */
#ifndef API_METRICS_H
#define API_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

struct api;

/* enum name, metric, label ("" for none), help (of the first row of a metric) */
#define METRIC_TABLE(X)                                                                            \
    X(FINISH_STOP, "vllm:request_success_total", "finished_reason=\"stop\"", "Finished requests.") \
    X(FINISH_LENGTH, "vllm:request_success_total", "finished_reason=\"length\"", "")               \
    X(FINISH_ABORT, "vllm:request_success_total", "finished_reason=\"abort\"", "")                 \
    X(ADMITTED, "sluice_admitted_total", "", "Requests admitted by the limits.")                   \
    X(LIMITED, "sluice_limited_total", "", "Requests refused by a limit (429).")                   \
    X(FAILED, "sluice_failed_total", "", "Admitted requests that failed.")                         \
    X(CLIENT_GONE, "sluice_client_gone_total", "", "Clients that left before their answer.")       \
    X(JOURNAL_FAILED, "sluice_journal_failed_total", "", "Usage records that were not written.")   \
    X(BILLED_PROMPT, "sluice_billed_tokens_total", "kind=\"prompt\"", "Tokens billed.")            \
    X(BILLED_CACHED, "sluice_billed_tokens_total", "kind=\"cached\"", "")                          \
    X(BILLED_OUTPUT, "sluice_billed_tokens_total", "kind=\"output\"", "")                          \
    X(CONNECTIONS_REFUSED, "sluice_connections_refused_total", "",                                 \
      "Connections closed because the loop has its fill.")                                         \
    X(CONNECTIONS_SHUT, "sluice_connections_shut_total", "", "Connections cut for flooding.")

enum metric {
#define METRIC_ENUM(name, metric, label, help) METRIC_##name,
    METRIC_TABLE(METRIC_ENUM)
#undef METRIC_ENUM
        METRIC_COUNT
};

#define METRIC_ROUTES_MAX   16
#define METRIC_STATUSES_MAX 24

struct metrics {
    _Atomic uint64_t counters[METRIC_COUNT];
    /* by route (index into routes, the last: none) and HTTP status (index into a table) */
    _Atomic uint64_t requests[METRIC_ROUTES_MAX][METRIC_STATUSES_MAX];
    /* gauges that the loop publishes for others */
    _Atomic uint64_t live;
    _Atomic uint64_t connections;
    _Atomic uint64_t unsettled;
};

static inline void metrics_add(struct metrics *m, enum metric which, uint64_t n)
{
    atomic_fetch_add_explicit(&m->counters[which], n, memory_order_relaxed);
}

void metrics_request(struct metrics *m, size_t route, int http_status);
/* Prometheus text, summed over all loops. Any thread. */
void metrics_put(struct buf *b, struct api *a);

#endif
