#include "engine/cpu/attention.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

static uint32_t round8(uint32_t n)
{
    return (n + 7) & ~7u;
}

const struct kv_kernels *kv_kernels_of(const struct kernels *kernels,
                                       const struct device_config *cfg)
{
    if (cfg->mode == DEVICE_EXACT)
        return cfg->kv_type == KV_AUTO ? &kernels->kv_f32 : NULL;
    return cfg->kv_type == KV_Q8 ? &kernels->kv_q8 : &kernels->kv_f16;
}

/* K or V of one (page, layer, head), `width` elements to a token. */
static size_t part_bytes(const struct kv_kernels *kernels, uint32_t width)
{
    return KV_TOKENS * (kernels->scale_bytes + width * kernels->element_bytes);
}

static size_t head_bytes(const struct model_shape *shape, const struct kv_kernels *kernels)
{
    return part_bytes(kernels, shape->head_dim) + part_bytes(kernels, round8(shape->head_dim));
}

size_t kv_page_bytes(const struct model_shape *shape, const struct kv_kernels *kernels)
{
    return (size_t)shape->n_layers * shape->n_kv_heads * head_bytes(shape, kernels);
}

enum status kv_open(struct kv *kv, const struct model_shape *shape,
                    const struct kv_kernels *kernels, uint32_t n_pages, struct reason *why)
{
    size_t bytes = kv_page_bytes(shape, kernels);
    void *p;

    *kv = (struct kv){.kernels = kernels,
                      .page_bytes = bytes,
                      .n_pages = n_pages,
                      .n_kv_heads = shape->n_kv_heads,
                      .head_dim = shape->head_dim,
                      .head_pad = round8(shape->head_dim)};
    kv->part_bytes = part_bytes(kernels, shape->head_dim);
    kv->head_bytes = head_bytes(shape, kernels);
    if (__builtin_mul_overflow(bytes, n_pages, &bytes))
        return fail(why, ST_TOO_LARGE, "%u KV pages of %zu bytes", n_pages, kv->page_bytes);
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return fail(why, ST_NO_MEMORY, "no memory for %zu MiB of KV pages", bytes >> 20);
    madvise(p, bytes, MADV_HUGEPAGE);
    kv->memory = p;
    return ST_OK;
}

void kv_close(struct kv *kv)
{
    if (kv->memory != NULL)
        munmap(kv->memory, kv->page_bytes * kv->n_pages);
    kv->memory = NULL;
}

uint8_t *kv_part(const struct kv *kv, uint32_t page, uint32_t layer, uint32_t head)
{
    return kv->memory + page * kv->page_bytes +
           ((size_t)layer * kv->n_kv_heads + head) * kv->head_bytes;
}

/* What a query sees of a split: [from, to) of its tokens; from == to: nothing. */
struct part {
    uint32_t from, to;
    uint32_t aligned; /* `from` down to its page */
};

/* Per query of a unit: a split's scores, its weighted values, and the merged ones. */
struct query {
    const float *q;
    float *p;                   /* (SPLIT_TOKENS) */
    float *acc;                 /* (head_pad): this split */
    float *out;                 /* (head_pad): splits so far */
    float max, sum;             /* of the splits so far */
    float split_max, split_sum; /* of this split */
    struct part part;
    uint32_t position;
    uint32_t first; /* of the positions that it sees */
    bool begun;     /* out, max and sum hold something */
};

static size_t query_floats(uint32_t head_dim)
{
    return SPLIT_TOKENS + 2 * (size_t)round8(head_dim);
}

static uint32_t group_heads(const struct model_shape *shape)
{
    return shape->n_heads / shape->n_kv_heads;
}

size_t attention_scratch_floats(const struct model_shape *shape)
{
    size_t queries = (size_t)UNIT_ROWS * group_heads(shape);

    return queries * query_floats(shape->head_dim) +
           queries * (sizeof(struct query) / sizeof(float) + 1) + 16;
}

uint32_t attention_units(const struct device_step *step, struct attention_unit *units)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < step->n_rows; r++) {
        struct attention_unit *u = &units[n > 0 ? n - 1 : 0];

        if (n > 0 && u->n_rows < UNIT_ROWS &&
            step->rows[r].sequence == step->rows[u->first_row].sequence)
            u->n_rows++;
        else
            units[n++] = (struct attention_unit){.first_row = r, .n_rows = 1};
    }
    return n;
}

/* Queries at the start of scratch, their floats after them. */
static struct query *lay_out(const struct attention *a, const struct attention_unit *u,
                             uint32_t kv_head, uint32_t n_queries, float *scratch)
{
    uint32_t group = a->n_heads / a->kv->n_kv_heads, pad = a->kv->head_pad;
    struct query *queries = (struct query *)(void *)scratch;
    float *floats = (float *)(void *)(queries + n_queries);

    for (uint32_t i = 0; i < n_queries; i++, floats += query_floats(a->kv->head_dim)) {
        uint32_t row = u->first_row + i / group, head = kv_head * group + i % group;

        uint32_t position = a->step->rows[row].position;

        queries[i] = (struct query){
            .q = a->q + row * a->ldq + (size_t)head * a->kv->head_dim,
            .p = floats,
            .acc = floats + SPLIT_TOKENS,
            .out = floats + SPLIT_TOKENS + pad,
            .position = position,
            .first = a->window != 0 && position >= a->window ? position - a->window + 1 : 0};
    }
    return queries;
}

/* Scores of one page for all queries that see any of it. */
static void score_page(const struct attention *a, const struct query *queries, uint32_t n_queries,
                       const uint8_t *k_page, uint32_t offset)
{
    for (uint32_t i = 0; i < n_queries; i += QK_QUERIES) {
        uint32_t n = n_queries - i < QK_QUERIES ? n_queries - i : QK_QUERIES;
        const float *q[QK_QUERIES];
        float *scores[QK_QUERIES];

        for (uint32_t j = 0; j < n; j++) {
            q[j] = queries[i + j].q;
            scores[j] = queries[i + j].p + offset;
        }
        a->kv->kernels->qk_page(q, scores, n, k_page, a->kv->head_dim);
    }
}

static void merge(const struct attention *a, struct query *q)
{
    float max = q->split_max, sum = q->split_sum, top, old, new;

    if (!q->begun) {
        memcpy(q->out, q->acc, a->kv->head_pad * sizeof *q->out);
        q->max = max;
        q->sum = sum;
        q->begun = true;
        return;
    }
    top = max > q->max ? max : q->max;
    old = __builtin_expf(q->max - top);
    new = __builtin_expf(max - top);
    a->kernels->scale_add(q->out, old, q->acc, new, a->kv->head_pad);
    q->sum = q->sum * old + sum * new;
    q->max = top;
}

static struct part part_of(const struct query *q, uint32_t start)
{
    uint32_t end = q->position + 1 < start + SPLIT_TOKENS ? q->position + 1 : start + SPLIT_TOKENS;
    uint32_t from = q->first > start ? q->first : start;

    if (from >= end)
        return (struct part){0};
    return (struct part){
        .from = from - start, .to = end - start, .aligned = (from - start) / KV_TOKENS * KV_TOKENS};
}

/* The weights of a split's tokens. Tokens of the first page that lie before the window weigh
 * nothing. */
static void weigh_split(const struct attention *a, struct query *q, uint32_t start)
{
    struct part part = part_of(q, start);

    q->part = part;
    if (part.from == part.to)
        return;
    for (uint32_t t = part.aligned; t < part.from; t++)
        q->p[t] = -INFINITY;
    if (a->cap != 0.0f)
        a->kernels->soft_cap(q->p + part.from, part.to - part.from, a->cap);
    a->kernels->softmax(q->p + part.aligned, part.to - part.aligned, &q->split_max, &q->split_sum);
    memset(q->acc, 0, a->kv->head_pad * sizeof *q->acc);
}

/* Tokens of the page at `t` that a query sees. */
static uint32_t seen_of_page(const struct query *q, uint32_t t)
{
    if (t < q->part.aligned || t >= q->part.to)
        return 0;
    return q->part.to - t < KV_TOKENS ? q->part.to - t : KV_TOKENS;
}

/* Weighted values of one page, for adjacent queries that see the same tokens of it at a time. */
static void value_page(const struct attention *a, const struct query *queries, uint32_t n_queries,
                       const uint8_t *v_page, uint32_t t)
{
    for (uint32_t i = 0, n; i < n_queries; i += n) {
        uint32_t n_tokens = seen_of_page(&queries[i], t);
        const float *p[QK_QUERIES];
        float *acc[QK_QUERIES];

        for (n = 0;
             n < QK_QUERIES && i + n < n_queries && seen_of_page(&queries[i + n], t) == n_tokens;
             n++) {
            p[n] = queries[i + n].p + t;
            acc[n] = queries[i + n].acc;
        }
        if (n_tokens > 0)
            a->kv->kernels->pv_page(p, acc, n, n_tokens, v_page, a->kv->head_pad);
    }
}

/* Tokens [start, start + 256) for the queries; `pages` are theirs. Positions ascend, and with them
 * the windows: the first query sees the earliest token, the last one the latest. */
static void run_split(const struct attention *a, struct query *queries, uint32_t n_queries,
                      const uint32_t *pages, uint32_t kv_head, uint32_t start)
{
    uint32_t earliest = queries[0].first > start ? queries[0].first - start : 0;
    uint32_t first = earliest / KV_TOKENS * KV_TOKENS;
    uint32_t seen = queries[n_queries - 1].position + 1 - start;

    for (uint32_t t = first; t < seen && t < SPLIT_TOKENS; t += KV_TOKENS)
        score_page(a, queries, n_queries, kv_part(a->kv, pages[t / KV_TOKENS], a->layer, kv_head),
                   t);
    for (uint32_t i = 0; i < n_queries; i++)
        weigh_split(a, &queries[i], start);
    for (uint32_t t = first; t < seen && t < SPLIT_TOKENS; t += KV_TOKENS)
        value_page(a, queries, n_queries,
                   kv_part(a->kv, pages[t / KV_TOKENS], a->layer, kv_head) + a->kv->part_bytes, t);
    for (uint32_t i = 0; i < n_queries; i++)
        if (queries[i].part.from < queries[i].part.to)
            merge(a, &queries[i]);
}

static void run_unit(void *arg, uint32_t item, unsigned thread)
{
    const struct attention *a = arg;
    const struct attention_unit *u = &a->units[item / a->kv->n_kv_heads];
    uint32_t kv_head = item % a->kv->n_kv_heads, group = a->n_heads / a->kv->n_kv_heads;
    uint32_t n_queries = u->n_rows * group, seen = 0;
    struct query *queries = lay_out(a, u, kv_head, n_queries, a->scratch[thread]);
    const struct step_sequence *s = &a->step->sequences[a->step->rows[u->first_row].sequence];
    const uint32_t *pages = a->step->pages + s->first_page;

    for (uint32_t start = queries[0].first / SPLIT_TOKENS * SPLIT_TOKENS;
         start <= queries[n_queries - 1].position; start += SPLIT_TOKENS) {
        while (queries[seen].position < start)
            seen++;
        run_split(a, queries + seen, n_queries - seen, pages + start / KV_TOKENS, kv_head, start);
    }
    for (uint32_t i = 0; i < n_queries; i++) {
        uint32_t row = u->first_row + i / group, head = kv_head * group + i % group;
        float *out = a->out + row * a->ldo + (size_t)head * a->kv->head_dim;

        for (uint32_t d = 0; d < a->kv->head_dim; d++)
            out[d] = queries[i].out[d] / queries[i].sum;
    }
}

void attention_run(struct attention *a, struct pool *pool)
{
    pool_run(pool, run_unit, a, a->n_units * a->kv->n_kv_heads);
}
