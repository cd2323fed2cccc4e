#include "engine/text/merges.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* Up to this many symbols, going through all pairs costs less than keeping a heap. */
#define SCAN_MAX 24

/* A doubly linked list in an array: merging two neighbours keeps the left and unlinks the right. */
struct merge_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
};

struct merge *merges_slot(const struct merges *m, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (size_t)((key * 0x9E3779B97F4A7C15u) >> 32) & m->mask;

    while (m->slots[i].result != -1 && (m->slots[i].left != left || m->slots[i].right != right))
        i = (i + 1) & m->mask;
    return &m->slots[i];
}

/* NULL: the pair doesn't merge. */
static const struct merge *find_merge(const struct merges *m, int32_t left, int32_t right)
{
    const struct merge *found = merges_slot(m, left, right);

    return found->result != -1 ? found : NULL;
}

void merges_dispose(struct merges *m)
{
    free(m->slots);
}

void merge_work_dispose(struct merge_work *w)
{
    free(w->ids);
    free(w->symbols);
    free(w->heap);
}

bool merge_work_reserve(struct merge_work *w, size_t n)
{
    size_t cap = w->cap > 0 ? w->cap : 256;

    if (n <= w->cap)
        return true;
    while (cap < n)
        cap *= 2;
    merge_work_dispose(w);
    w->ids = calloc(cap, sizeof *w->ids);
    w->symbols = calloc(cap, sizeof *w->symbols);
    w->heap = calloc(cap, 2 * sizeof *w->heap);
    w->cap = w->ids != NULL && w->symbols != NULL && w->heap != NULL ? cap : 0;
    return w->cap != 0;
}

/* ---- short pieces ---- */

struct pair {
    uint32_t rank; /* UINT32_MAX: doesn't merge */
    int32_t result;
};

static struct pair pair_of(const struct merges *m, int32_t left, int32_t right)
{
    const struct merge *found = find_merge(m, left, right);

    return found != NULL ? (struct pair){found->rank, found->result} : (struct pair){UINT32_MAX, 0};
}

static size_t best_pair(const struct pair *pairs, size_t n)
{
    size_t best = 0;

    for (size_t i = 1; i < n; i++)
        if (pairs[i].rank < pairs[best].rank)
            best = i;
    return best;
}

static size_t apply_by_scan(const struct merges *m, int32_t *ids, size_t n)
{
    struct pair pairs[SCAN_MAX];

    for (size_t i = 0; i + 1 < n; i++)
        pairs[i] = pair_of(m, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t i = best_pair(pairs, n - 1);

        if (pairs[i].rank == UINT32_MAX)
            break;
        ids[i] = pairs[i].result;
        n--;
        memmove(ids + i + 1, ids + i + 2, (n - i - 1) * sizeof *ids);
        memmove(pairs + i, pairs + i + 1, (n - i - 1) * sizeof *pairs);
        if (i > 0)
            pairs[i - 1] = pair_of(m, ids[i - 1], ids[i]);
        if (i + 1 < n)
            pairs[i] = pair_of(m, ids[i], ids[i + 1]);
    }
    return n;
}

/* ---- long pieces ---- */

/* A binary heap of candidates, smallest first: rank in the high half, so that the best merge comes
 * first and among equals the leftmost; position in the low half. */
static void heap_push(uint64_t *heap, size_t *n, uint64_t v)
{
    size_t i = (*n)++;

    for (; i > 0 && heap[(i - 1) / 2] > v; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = v;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0], v = heap[--*n];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < *n) {
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= v)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = v;
    return top;
}

static const struct merge *merge_at(const struct merges *m, const struct merge_symbol *s,
                                    int32_t pos)
{
    if (pos < 0 || s[pos].id == -1 || s[pos].next < 0)
        return NULL;
    return find_merge(m, s[pos].id, s[s[pos].next].id);
}

static void push_candidate(const struct merges *m, struct merge_work *w, size_t *n_heap,
                           int32_t pos)
{
    const struct merge *found = merge_at(m, w->symbols, pos);

    if (found != NULL)
        heap_push(w->heap, n_heap, (uint64_t)found->rank << 32 | (uint32_t)pos);
}

static void unlink_right(struct merge_symbol *s, int32_t pos)
{
    int32_t right = s[pos].next;

    s[pos].next = s[right].next;
    if (s[right].next >= 0)
        s[s[right].next].prev = pos;
    s[right].id = -1;
}

/* The heap holds at most two entries for each symbol: one pair each to begin with, and a merge,
 * which removes a symbol, adds two for the one it took. A candidate is stale when the pair at its
 * position is no longer one of its rank. */
static void merge_all(const struct merges *m, struct merge_work *w, size_t n)
{
    size_t n_heap = 0;

    for (size_t i = 0; i + 1 < n; i++)
        push_candidate(m, w, &n_heap, (int32_t)i);
    while (n_heap > 0) {
        uint64_t top = heap_pop(w->heap, &n_heap);
        int32_t pos = (int32_t)(uint32_t)top;
        const struct merge *found = merge_at(m, w->symbols, pos);

        if (found == NULL || found->rank != top >> 32)
            continue;
        w->symbols[pos].id = found->result;
        unlink_right(w->symbols, pos);
        push_candidate(m, w, &n_heap, w->symbols[pos].prev);
        push_candidate(m, w, &n_heap, pos);
    }
}

static size_t apply_by_heap(const struct merges *m, struct merge_work *w, size_t n)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++)
        w->symbols[i] =
            (struct merge_symbol){w->ids[i], (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};
    merge_all(m, w, n);
    for (int32_t i = 0; i >= 0; i = w->symbols[i].next)
        w->ids[left++] = w->symbols[i].id;
    return left;
}

size_t merges_apply(const struct merges *m, struct merge_work *w, size_t n)
{
    if (n < 2)
        return n;
    return n <= SCAN_MAX ? apply_by_scan(m, w->ids, n) : apply_by_heap(m, w, n);
}
