/* A Prometheus histogram with fixed buckets, in whole numbers. One thread writes, any may read: the
 * writer never waits and allocates nothing, the reader gets buckets, count and sum of one moment.
 */
#ifndef API_HISTOGRAM_H
#define API_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define HISTOGRAM_BOUNDS_MAX 22

/* Upper bounds of the buckets, inclusive, ascending; one bucket more takes what is above. */
struct histogram_scale {
    unsigned n; /* <= HISTOGRAM_BOUNDS_MAX */
    int64_t bounds[HISTOGRAM_BOUNDS_MAX];
};

struct histogram_copy {
    _Atomic uint64_t buckets[HISTOGRAM_BOUNDS_MAX + 1];
    _Atomic uint64_t sum;
};

/* All zero is an empty one. Kept twice: while one copy is written the other is read, so that a
 * writer that loses its processor in between holds up nobody. */
struct histogram {
    _Atomic uint64_t turn; /* copies[turn % 2] is not being written */
    struct histogram_copy copies[2];
};

/* What was read, and may be added up over threads. Buckets are not cumulative. */
struct histogram_sum {
    uint64_t buckets[HISTOGRAM_BOUNDS_MAX + 1];
    uint64_t sum;
};

/* n values (n > 0) that are `total` together, each taken as their mean. Below 0 counts as 0. The
 * writer's thread. */
void histogram_observe(struct histogram *h, const struct histogram_scale *s, int64_t total,
                       uint32_t n);
/* Adds h to *out. Any thread. */
void histogram_add(const struct histogram *h, struct histogram_sum *out);

#endif
