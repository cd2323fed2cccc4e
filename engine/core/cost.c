#include "engine/core/cost.h"

#define PACE_BITS 20
#define PACE_ONE  (1u << PACE_BITS)
#define PACE_MOST 16u /* times faster or slower */
#define PACE_OVER 32  /* about so many steps are averaged */

uint64_t cost_rows_ns(const struct cost *c, uint32_t position, uint32_t n)
{
    uint64_t attended = (uint64_t)n * position + (uint64_t)n * ((uint64_t)n + 1) / 2;

    return c->row_ns * n + c->attended_ns * attended;
}

uint64_t cost_chunk_ns(const struct cost *c, uint32_t position, uint32_t n, uint32_t n_plain)
{
    uint64_t n_logits = n > n_plain ? n - n_plain : 0;

    return cost_rows_ns(c, position, n) + c->logits_ns * n_logits;
}

uint32_t cost_rows_in(const struct cost *c, uint32_t position, uint32_t n_plain, uint32_t most,
                      uint64_t ns)
{
    uint32_t low = 0, high = most;

    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;

        if (cost_chunk_ns(c, position, middle, n_plain) <= ns)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct cost cost_cautious(uint64_t step_ns, uint32_t n)
{
    uint64_t row_ns = step_ns / n;

    return (struct cost){.row_ns = row_ns < COST_NS_MAX ? row_ns : COST_NS_MAX};
}

void pace_init(struct pace *p)
{
    p->q20 = PACE_ONE;
}

static uint64_t clamp(uint64_t v, uint64_t least, uint64_t most)
{
    return v < least ? least : v > most ? most : v;
}

void pace_learn(struct pace *p, uint64_t predicted_ns, uint64_t took_ns)
{
    const uint64_t now = p->q20;
    uint64_t seen;

    if (predicted_ns == 0)
        return;
    took_ns = clamp(took_ns, 0, UINT64_MAX >> PACE_BITS);
    seen = clamp((took_ns << PACE_BITS) / predicted_ns, now / 2, now * 2);
    p->q20 = (uint32_t)clamp((now * (PACE_OVER - 1) + seen) / PACE_OVER, PACE_ONE / PACE_MOST,
                             PACE_ONE * PACE_MOST);
}

static uint64_t at_pace(const struct pace *p, uint64_t ns, uint64_t most)
{
    return clamp(ns * p->q20 >> PACE_BITS, 0, most);
}

struct cost pace_cost(const struct pace *p, const struct cost *measured)
{
    return (struct cost){.base_ns = at_pace(p, measured->base_ns, COST_NS_MAX),
                         .row_ns = at_pace(p, measured->row_ns, COST_NS_MAX),
                         .attended_ns = at_pace(p, measured->attended_ns, COST_ATTENDED_NS_MAX),
                         .logits_ns = at_pace(p, measured->logits_ns, COST_NS_MAX)};
}
