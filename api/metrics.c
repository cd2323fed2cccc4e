#include "api/metrics.h"

#include <assert.h>
#include <stdlib.h>

#include "base/size.h"

/* vLLM's buckets (vllm/v1/metrics/loggers.py): times in microseconds here. Tokens go 1, 2, 5 per
 * decade up to the model's context; what lies above that is left out of the text. */
const struct histogram_scale metric_scales[SCALE_COUNT] = {
    [SCALE_FIRST_TOKEN] = {22, {1000,     5000,      10000,     20000,     40000,    60000,
                                80000,    100000,    250000,    500000,    750000,   1000000,
                                2500000,  5000000,   7500000,   10000000,  20000000, 40000000,
                                80000000, 160000000, 640000000, 2560000000}},
    [SCALE_TOKEN_GAP] = {19,
                         {10000, 25000, 50000, 75000, 100000, 150000, 200000, 300000, 400000,
                          500000, 750000, 1000000, 2500000, 5000000, 7500000, 10000000, 20000000,
                          40000000, 80000000}},
    [SCALE_REQUEST] = {21, {300000,    500000,     800000,    1000000,   1500000,   2000000,
                            2500000,   5000000,    10000000,  15000000,  20000000,  30000000,
                            40000000,  50000000,   60000000,  120000000, 240000000, 480000000,
                            960000000, 1920000000, 7680000000}},
    [SCALE_TOKENS] = {22, {1,      2,      5,       10,      20,      50,      100,   200,
                           500,    1000,   2000,    5000,    10000,   20000,   50000, 100000,
                           200000, 500000, 1000000, 2000000, 5000000, 10000000}},
};

static const int statuses[] = {200, 400, 401, 403, 404, 405, 413, 429, 499, 500, 503, 504};

static_assert(COUNT_OF(statuses) < METRIC_STATUSES_MAX, "one more is for any other");

enum status metrics_init(struct metrics *m, size_t n_models)
{
    m->models = calloc(n_models, sizeof *m->models);
    if (m->models == NULL)
        return ST_NO_MEMORY;
    m->n_models = n_models;
    return ST_OK;
}

void metrics_dispose(struct metrics *m)
{
    free(m->models);
}

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

int metrics_status_at(size_t i)
{
    if (i < COUNT_OF(statuses))
        return statuses[i];
    return i == COUNT_OF(statuses) ? 0 : -1;
}

struct model_metrics *metrics_of_model(struct metrics *m, const struct engine_model *model)
{
    size_t i = 0;

    while (i < m->n_models && m->models[i].model != model)
        i++;
    assert(i < m->n_models);
    return &m->models[i];
}
