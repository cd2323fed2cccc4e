/* What a step will take, predicted from its shape. Linear and in whole nanoseconds:
 *
 *   base + row * rows + attended * attended tokens + logits * rows with logits
 *
 * A row at position p attends to p + 1 tokens. The base holds what every step pays whatever its
 * size (reading the weights, starting kernels). calibrate.h measures the coefficients. */
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
/* Most rows from `position`, not above `most`, that `ns` pays for. */
uint32_t cost_rows_in(const struct cost *c, uint32_t position, uint32_t most, uint64_t ns);

#endif
