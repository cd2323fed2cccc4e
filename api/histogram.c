#include "api/histogram.h"

#include <sched.h>
#include <stdbool.h>

#include "base/size.h"

/* A writer is done within a few stores, unless it loses its processor there. */
#define READ_TRIES 1000

static unsigned bucket_of(const struct histogram_scale *s, int64_t v)
{
    unsigned i = 0;

    while (i < s->n && v > s->bounds[i])
        i++;
    return i;
}

/* A sequence lock: the stores in between are releases, so that who reads one of them reads the odd
 * turn, too. There is one writer, hence no read-modify-write. */
void histogram_observe(struct histogram *h, const struct histogram_scale *s, int64_t total,
                       uint32_t n)
{
    int64_t clamped = int64_max(total, 0);
    _Atomic uint64_t *bucket = &h->buckets[bucket_of(s, clamped / n)];
    uint64_t turn = atomic_load_explicit(&h->turn, memory_order_relaxed);
    uint64_t count = atomic_load_explicit(bucket, memory_order_relaxed);
    uint64_t sum = atomic_load_explicit(&h->sum, memory_order_relaxed);

    atomic_store_explicit(&h->turn, turn + 1, memory_order_relaxed);
    atomic_store_explicit(bucket, count + n, memory_order_release);
    atomic_store_explicit(&h->sum, sum + (uint64_t)clamped, memory_order_release);
    atomic_store_explicit(&h->turn, turn + 2, memory_order_release);
}

/* False: it was written meanwhile. */
static bool read_once(const struct histogram *h, struct histogram_sum *out)
{
    uint64_t turn = atomic_load_explicit(&h->turn, memory_order_acquire);

    for (unsigned i = 0; i < COUNT_OF(h->buckets); i++)
        out->buckets[i] = atomic_load_explicit(&h->buckets[i], memory_order_acquire);
    out->sum = atomic_load_explicit(&h->sum, memory_order_acquire);
    return turn % 2 == 0 && atomic_load_explicit(&h->turn, memory_order_relaxed) == turn;
}

/* When all tries failed the sum may lack one value; the buckets are right by themselves. */
void histogram_add(const struct histogram *h, struct histogram_sum *out)
{
    struct histogram_sum one;

    for (int i = 0; !read_once(h, &one) && i < READ_TRIES; i++)
        sched_yield();
    for (unsigned i = 0; i < COUNT_OF(one.buckets); i++)
        out->buckets[i] += one.buckets[i];
    out->sum += one.sum;
}
