/* What a step will take, predicted from its shape. Linear and in whole nanoseconds:
 *
 *   base + row * rows + attended * attended tokens + logits * rows with logits
 *
 * A row at position p attends to p + 1 tokens. The base holds what every step pays whatever its
 * size (reading the weights, starting kernels). calibrate.h measures the coefficients; how
 * far real steps are from what is predicted is learnt from them (struct pace). */
#ifndef ENGINE_CORE_COST_H
#define ENGINE_CORE_COST_H

#include <stdint.h>

struct cost {
    uint64_t base_ns, row_ns, attended_ns, logits_ns; /* all 0: steps take no time */
};

/* Bounds of coefficients, far above any device: no sum over a context of 2^24 tokens overflows. */
#define COST_NS_MAX          1000000000ull
#define COST_ATTENDED_NS_MAX 100000ull

/* Of n rows at `position` and after, without the base and without logits. */
uint64_t cost_rows_ns(const struct cost *c, uint32_t position, uint32_t n);
/* The same of a prompt's chunk, whose rows after the first n_plain have logits. */
uint64_t cost_chunk_ns(const struct cost *c, uint32_t position, uint32_t n, uint32_t n_plain);
/* Most rows of such a chunk, not above `most`, that `ns` pays for. */
uint32_t cost_rows_in(const struct cost *c, uint32_t position, uint32_t n_plain, uint32_t most,
                      uint64_t ns);
/* For a device of unknown speed: step_ns pays for n rows, whatever they attend to. */
struct cost cost_cautious(uint64_t step_ns, uint32_t n);

/* Real over predicted time, a slow moving average: a machine that others share, or a measurement
 * that met them, is followed over some dozens of steps, while a single one that was held up moves
 * it by a thirtieth. From the clock that is passed in, so that a simulation repeats. */
struct pace {
    uint32_t q20; /* 1 << 20: as predicted */
};

void pace_init(struct pace *p);
/* took_ns > 0. Nothing is learnt where nothing was predicted. */
void pace_learn(struct pace *p, uint64_t predicted_ns, uint64_t took_ns);
/* What steps take at this pace: at most 16 times more or less than `measured`. */
struct cost pace_cost(const struct pace *p, const struct cost *measured);

#endif
