/* How long the work of a queue takes at the speed that steps have: what a refused request is told.
 */
#include "engine/core/scheduler_state.h"

/* Output of a request before any has ended; then a moving average over about as many, in 256ths of
 * a token, so that small changes aren't lost in rounding. */
#define MEAN_OUTPUT_FIRST 128
#define MEAN_OUTPUT_OVER  16
#define MEAN_OUTPUT_BITS  8

#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 60000

void forecast_init(struct scheduler *s)
{
    s->mean_output_q8 = MEAN_OUTPUT_FIRST << MEAN_OUTPUT_BITS;
}

void forecast_learn(struct scheduler *s, uint32_t n_output)
{
    uint64_t seen = (uint64_t)n_output << MEAN_OUTPUT_BITS;

    s->mean_output_q8 = (s->mean_output_q8 * (MEAN_OUTPUT_OVER - 1) + seen) / MEAN_OUTPUT_OVER;
}

/* Divided first: the product of a huge context's figures would not fit. */
static uint64_t mean_output_ns(const struct scheduler *s, uint64_t token_ns)
{
    return s->mean_output_q8 * (token_ns >> MEAN_OUTPUT_BITS);
}

/* Of one token sampled in a full batch. */
static uint64_t token_ns(const struct scheduler *s, uint32_t position)
{
    const struct cost *c = &s->cost;

    return c->base_ns / s->cfg.max_sequences + c->logits_ns + cost_rows_ns(c, position, 1);
}

uint64_t forecast_ns(const struct scheduler *s, const struct sequence *q)
{
    uint64_t token = token_ns(s, q->n_tokens), most = (q->limit - q->n_tokens) * token;
    uint64_t mean = mean_output_ns(s, token);

    return cost_rows_ns(&s->cost, 0, q->n_tokens) + (most < mean ? most : mean);
}

/* Those that run are taken to be half way. */
int64_t scheduler_retry_after_ms(const struct scheduler *s, uint64_t tenant)
{
    uint64_t running = s->n_running * mean_output_ns(s, token_ns(s, s->limit / 2)) / 2;
    uint64_t ms = (running + queue_work_before_ns(&s->queue, tenant)) / 1000000;

    return ms < RETRY_MIN_MS ? RETRY_MIN_MS : ms > RETRY_MAX_MS ? RETRY_MAX_MS : (int64_t)ms;
}
