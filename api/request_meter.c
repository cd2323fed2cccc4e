#include "api/request_meter.h"

#include <assert.h>

static const enum metric_scale scale_of[] = {
#define SCALE_ROW(name, metric, scale, help) [MODEL_HISTOGRAM_##name] = scale,
    MODEL_HISTOGRAM_TABLE(SCALE_ROW)
#undef SCALE_ROW
};

static void add(struct request_meter *m, enum model_metric which, uint64_t n)
{
    atomic_fetch_add_explicit(&m->to->counters[which], n, memory_order_relaxed);
}

static void observe(struct request_meter *m, enum model_histogram which, int64_t total, uint32_t n)
{
    histogram_observe(&m->to->histograms[which], &metric_scales[scale_of[which]], total, n);
}

/* Counts go up only: an end that bills less than was told on the way takes nothing back. */
static uint32_t advance(uint32_t *counted, uint32_t now)
{
    uint32_t more = now > *counted ? now - *counted : 0;

    *counted += more;
    return more;
}

/* The new output tokens. */
static uint32_t count_tokens(struct request_meter *m, const struct engine_usage *u)
{
    uint32_t n_output = advance(&m->counted.output_tokens, u->output_tokens);

    add(m, MODEL_METRIC_PROMPT_TOKENS, advance(&m->counted.prompt_tokens, u->prompt_tokens));
    add(m, MODEL_METRIC_GENERATION_TOKENS, n_output);
    return n_output;
}

void request_meter_begin(struct request_meter *m, struct model_metrics *to, int64_t begin_us)
{
    m->to = to;
    m->begin_us = begin_us;
}

static void observe_gaps(struct request_meter *m, struct token_read *r)
{
    if (r->n_gaps > 0)
        observe(m, MODEL_HISTOGRAM_TOKEN_GAP, r->at_us - r->before_us, r->n_gaps);
    r->n_gaps = 0;
}

static void begin_read(struct request_meter *m, struct token_read *r, int64_t read_us)
{
    if (r->at_us != r->before_us)
        observe_gaps(m, r);
    r->before_us = r->at_us;
    r->at_us = read_us;
}

void request_meter_tokens(struct request_meter *m, unsigned choice,
                          const struct engine_usage *so_far, int64_t read_us)
{
    uint32_t n = count_tokens(m, so_far);
    struct token_read *r;

    assert(choice < ENGINE_CHOICES_MAX);
    if (n == 0)
        return;
    if (!m->has_token)
        observe(m, MODEL_HISTOGRAM_FIRST_TOKEN, read_us - m->begin_us, 1);
    m->has_token = true;
    r = &m->reads[choice];
    if (r->at_us == 0) {
        *r = (struct token_read){.before_us = read_us, .at_us = read_us, .n_gaps = n - 1};
        return;
    }
    if (read_us != r->at_us)
        begin_read(m, r, read_us);
    r->n_gaps += n;
}

static enum model_metric reason_of(const struct engine_end *end)
{
    if (end->status == ST_CANCELLED)
        return MODEL_METRIC_ENDED_ABORT;
    if (end->status != ST_OK)
        return MODEL_METRIC_ENDED_ERROR;
    return end->finish == ENGINE_FINISH_LENGTH ? MODEL_METRIC_ENDED_LENGTH
                                               : MODEL_METRIC_ENDED_STOP;
}

static void observe_phases(struct request_meter *m, const struct engine_end *end)
{
    observe(m, MODEL_HISTOGRAM_QUEUE, end->queue_us, 1);
    if (end->usage.prompt_tokens > 0)
        observe(m, MODEL_HISTOGRAM_PREFILL, end->prefill_us, 1);
    if (end->usage.output_tokens > 0)
        observe(m, MODEL_HISTOGRAM_DECODE, end->decode_us, 1);
}

void request_meter_end(struct request_meter *m, const struct engine_end *end, bool ran,
                       int64_t now_us)
{
    count_tokens(m, &end->usage);
    for (unsigned i = 0; i < ENGINE_CHOICES_MAX; i++)
        observe_gaps(m, &m->reads[i]);
    add(m, reason_of(end), 1);
    observe(m, MODEL_HISTOGRAM_E2E, now_us - m->begin_us, 1);
    observe(m, MODEL_HISTOGRAM_REQUEST_PROMPT, end->usage.prompt_tokens, 1);
    observe(m, MODEL_HISTOGRAM_REQUEST_GENERATION, end->usage.output_tokens, 1);
    if (ran && (end->status == ST_OK || end->status == ST_CANCELLED))
        observe_phases(m, end);
}
