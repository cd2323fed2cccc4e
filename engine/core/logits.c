#include "engine/core/logits.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "engine/core/vec4.h"

enum status logits_top(const float *logits, uint32_t n, uint32_t *top)
{
    v4f most = vec4_splat(-INFINITY);
    v4i bad = {0, 0, 0, 0};
    float m;
    uint32_t i;

    for (i = 0; i + 4 <= n; i += 4) {
        v4f v;
        v4i above;

        memcpy(&v, logits + i, sizeof v);
        above = v > most;
        most = (v4f)(((v4i)v & above) | ((v4i)most & ~above));
        bad |= v != v; /* NOLINT(misc-redundant-expression): true for NaN */
    }
    m = most[0];
    for (int l = 1; l < 4; l++)
        m = most[l] > m ? most[l] : m;
    for (; i < n; i++) {
        m = logits[i] > m ? logits[i] : m;
        bad[0] |= isnan(logits[i]);
    }
    if ((bad[0] | bad[1] | bad[2] | bad[3]) != 0 || m == INFINITY)
        return ST_INTERNAL;
    if (m == -INFINITY)
        return ST_NO_CHOICE;
    for (i = 0; logits[i] != m; i++)
        ;
    *top = i;
    return ST_OK;
}

static bool comes_before(const float *logits, uint32_t a, uint32_t b)
{
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
}

/* The root of the heap is what comes last. */
static void sift_down(const float *logits, uint32_t *ids, uint32_t root, uint32_t n)
{
    uint32_t moved = ids[root], child;

    while ((child = 2 * root + 1) < n) {
        if (child + 1 < n && comes_before(logits, ids[child], ids[child + 1]))
            child++;
        if (!comes_before(logits, moved, ids[child]))
            break;
        ids[root] = ids[child];
        root = child;
    }
    ids[root] = moved;
}

static void make_heap(const float *logits, uint32_t *ids, uint32_t n)
{
    for (uint32_t i = n / 2; i > 0; i--)
        sift_down(logits, ids, i - 1, n);
}

static void sort_heap(const float *logits, uint32_t *ids, uint32_t n)
{
    for (uint32_t end = n; end > 1; end--) {
        uint32_t last = ids[end - 1];

        ids[end - 1] = ids[0];
        ids[0] = last;
        sift_down(logits, ids, 0, end - 1);
    }
}

void logits_sort(const float *logits, uint32_t *ids, uint32_t n)
{
    make_heap(logits, ids, n);
    sort_heap(logits, ids, n);
}

void logits_first(const float *logits, uint32_t n_vocab, uint32_t *ids, uint32_t n)
{
    if (n == 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i;
    make_heap(logits, ids, n);
    for (uint32_t i = n; i < n_vocab; i++) {
        if (logits[i] <= logits[ids[0]]) /* of equals the lower id, which came first, stays */
            continue;
        ids[0] = i;
        sift_down(logits, ids, 0, n);
    }
    sort_heap(logits, ids, n);
}
