#include "api/histogram.h"

#include <stdbool.h>

#include "base/size.h"

/* A try fails only where a value was observed meanwhile, which happens once in milliseconds. */
#define READ_TRIES 32

static unsigned bucket_of(const struct histogram_scale *s, int64_t v)
{
    unsigned i = 0;

    while (i < s->n && v > s->bounds[i])
        i++;
    return i;
}

static void add(struct histogram_copy *c, unsigned bucket, uint64_t n, uint64_t total)
{
    uint64_t count = atomic_load_explicit(&c->buckets[bucket], memory_order_relaxed);
    uint64_t sum = atomic_load_explicit(&c->sum, memory_order_relaxed);

    atomic_store_explicit(&c->buckets[bucket], count + n, memory_order_release);
    atomic_store_explicit(&c->sum, sum + total, memory_order_release);
}

/* A sequence lock over two copies ("latch"; Linux, include/linux/seqlock.h): readers are sent to
 * the one that is not written. The stores of values are releases, so that who reads one of them
 * reads the turn before it, too. There is one writer, hence no read-modify-write. */
void histogram_observe(struct histogram *h, const struct histogram_scale *s, int64_t total,
                       uint32_t n)
{
    uint64_t clamped = (uint64_t)int64_max(total, 0);
    unsigned bucket = bucket_of(s, (int64_t)clamped / n);
    uint64_t turn = atomic_load_explicit(&h->turn, memory_order_relaxed);

    atomic_store_explicit(&h->turn, turn + 1, memory_order_release);
    add(&h->copies[0], bucket, n, clamped);
    atomic_store_explicit(&h->turn, turn + 2, memory_order_release);
    add(&h->copies[1], bucket, n, clamped);
}

/* False: the copy was written meanwhile. */
static bool read_once(const struct histogram *h, struct histogram_sum *out)
{
    uint64_t turn = atomic_load_explicit(&h->turn, memory_order_acquire);
    const struct histogram_copy *c = &h->copies[turn % 2];

    for (unsigned i = 0; i < COUNT_OF(c->buckets); i++)
        out->buckets[i] = atomic_load_explicit(&c->buckets[i], memory_order_acquire);
    out->sum = atomic_load_explicit(&c->sum, memory_order_acquire);
    return atomic_load_explicit(&h->turn, memory_order_relaxed) == turn;
}

/* When all tries failed the sum may lack one value; the buckets are right by themselves. */
void histogram_add(const struct histogram *h, struct histogram_sum *out)
{
    struct histogram_sum one;

    for (int i = 1; !read_once(h, &one) && i < READ_TRIES; i++)
        ;
    for (unsigned i = 0; i < COUNT_OF(one.buckets); i++)
        out->buckets[i] += one.buckets[i];
    out->sum += one.sum;
}
