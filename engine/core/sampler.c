#include "engine/core/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/logits.h"
#include "engine/core/logprobs.h"
#include "engine/core/philox.h"
#include "engine/core/vec4.h"

/* Candidates are ordered by buckets of their logits, and only the buckets that a limit or the draw
 * falls into are sorted: linear in n_vocab for any distribution, where a sort of a flat one would
 * take longer than the model's own step. */
#define BUCKETS 1024u
/* Weights e^((logit - max) / T) past this exponent are below the smallest normal float. */
#define RANGE 88.0f
/* Sums of the unfiltered draw: a total per block, then one block is walked. */
#define BLOCK 256u

/* Below it, a logit 0.001 less than the largest weighs nothing, and the inverse stays far from
 * overflow. */
#define GREEDY_BELOW 1e-5f

struct sampler_scratch {
    float *weights;   /* (n_vocab): e^((logit - max) / T), by id */
    uint32_t *order;  /* (n_vocab): ids by bucket */
    uint16_t *bucket; /* (n_vocab): by id */
    double *sums;     /* (n_vocab / BLOCK + 1) */
    uint32_t n_vocab;
    uint32_t first[BUCKETS + 1]; /* into order */
    double sum[BUCKETS];
    bool sorted[BUCKETS];
};

struct sampler_scratch *sampler_scratch_new(uint32_t n_vocab)
{
    struct sampler_scratch *s = calloc(1, sizeof *s);

    if (s == NULL)
        return NULL;
    s->n_vocab = n_vocab;
    s->weights = calloc(n_vocab, sizeof *s->weights);
    s->order = calloc(n_vocab, sizeof *s->order);
    s->bucket = calloc(n_vocab, sizeof *s->bucket);
    s->sums = calloc(n_vocab / BLOCK + 1, sizeof *s->sums);
    if (s->weights == NULL || s->order == NULL || s->bucket == NULL || s->sums == NULL) {
        sampler_scratch_free(s);
        return NULL;
    }
    return s;
}

void sampler_scratch_free(struct sampler_scratch *s)
{
    if (s == NULL)
        return;
    free(s->weights);
    free(s->order);
    free(s->bucket);
    free(s->sums);
    free(s);
}

size_t sampler_scratch_bytes(uint32_t n_vocab)
{
    struct sampler_scratch s;

    return sizeof s + n_vocab * (sizeof *s.weights + sizeof *s.order + sizeof *s.bucket) +
           (n_vocab / BLOCK + 1) * sizeof *s.sums;
}

double sampler_uniform(uint64_t seed, uint32_t choice, uint32_t output_index)
{
    uint32_t c[4] = {output_index, choice, 0, 0};

    philox4x32(c, (uint32_t)seed, (uint32_t)(seed >> 32));
    /* 53 bits: every double of that spacing in [0, 1). */
    return (double)(((uint64_t)c[0] << 32 | c[1]) >> 11) * 0x1p-53;
}

/* weights[i] = e^((logit - max) / T). */
static void fill_weights(const float *logits, uint32_t n, float max, float inverse_t,
                         float *weights)
{
    uint32_t i;

    for (i = 0; i + 4 <= n; i += 4) {
        v4f v;

        memcpy(&v, logits + i, sizeof v);
        v = vec4_exp_negative((v - vec4_splat(max)) * vec4_splat(inverse_t));
        memcpy(weights + i, &v, sizeof v);
    }
    for (; i < n; i++)
        weights[i] = vec4_exp_negative(vec4_splat((logits[i] - max) * inverse_t))[0];
}

/* No limit that needs their order: ids in their own. */
static int32_t draw_any(struct sampler_scratch *s, uint32_t n, double u)
{
    double total = 0, target, at = 0;
    uint32_t b, i, last = 0;

    for (b = 0; b * BLOCK < n; b++) {
        double sum = 0;

        for (i = b * BLOCK; i < n && i < (b + 1) * BLOCK; i++)
            sum += s->weights[i];
        s->sums[b] = sum;
        total += sum;
    }
    target = u * total;
    for (b = 0; (b + 1) * BLOCK < n && at + s->sums[b] <= target; b++)
        at += s->sums[b];
    for (i = b * BLOCK; i < n; i++) {
        if (s->weights[i] == 0)
            continue;
        last = i;
        at += s->weights[i];
        if (at > target)
            break;
    }
    return (int32_t)last;
}

/* Counting sort of ids by bucket: bucket 0 holds the largest logits; within one, ids ascend. */
static void fill_buckets(struct sampler_scratch *s, const float *logits, uint32_t n, float max,
                         float inverse_t)
{
    const float scale = inverse_t * ((float)BUCKETS / RANGE);
    uint32_t count[BUCKETS] = {0}, at = 0;

    memset(s->sum, 0, sizeof s->sum);
    memset(s->sorted, 0, sizeof s->sorted);
    for (uint32_t i = 0; i < n; i++) {
        float place = (max - logits[i]) * scale;
        uint32_t b = place < (float)(BUCKETS - 1) ? (uint32_t)place : BUCKETS - 1;

        s->bucket[i] = (uint16_t)b;
        s->sum[b] += s->weights[i];
        count[b]++;
    }
    for (uint32_t b = 0; b < BUCKETS; b++) {
        s->first[b] = at;
        at += count[b];
        count[b] = s->first[b];
    }
    s->first[BUCKETS] = at;
    for (uint32_t i = 0; i < n; i++)
        s->order[count[s->bucket[i]]++] = i;
}

static void sort_bucket(struct sampler_scratch *s, const float *logits, uint32_t b)
{
    if (s->sorted[b])
        return;
    s->sorted[b] = true;
    logits_sort(logits, s->order + s->first[b], s->first[b + 1] - s->first[b]);
}

/* The candidates kept so far: the first `n` in descending order, of weight `total`. */
struct kept {
    uint32_t n;
    double total;
};

static void keep_top_k(struct sampler_scratch *s, const float *logits, uint32_t k,
                       struct kept *kept)
{
    uint32_t b = 0;

    kept->n = k;
    kept->total = 0;
    for (; s->first[b + 1] < k; b++)
        kept->total += s->sum[b];
    sort_bucket(s, logits, b);
    for (uint32_t i = s->first[b]; i < k; i++)
        kept->total += s->weights[s->order[i]];
}

/* Walks the kept candidates until their cumulative weight passes `target` (or, with `or_equal`,
 * reaches it). Returns the place of the last one walked, its cumulative weight in *reached. */
static uint32_t walk(struct sampler_scratch *s, const float *logits, const struct kept *kept,
                     double target, bool or_equal, double *reached)
{
    uint32_t b = 0, i;
    double at = 0;

    for (; b + 1 < BUCKETS && s->first[b + 1] < kept->n; b++) {
        double next = at + s->sum[b];

        if (next > target || (or_equal && next == target))
            break;
        at = next;
    }
    sort_bucket(s, logits, b);
    for (i = s->first[b]; i < kept->n; i++) {
        while (i == s->first[b + 1])
            sort_bucket(s, logits, ++b);
        at += s->weights[s->order[i]];
        if (at > target || (or_equal && at == target))
            break;
    }
    *reached = at;
    return i < kept->n ? i : kept->n - 1;
}

static bool has_below(const struct sampler_scratch *s, uint32_t from, uint32_t to, float min_p)
{
    for (uint32_t i = from; i < to; i++)
        if (s->weights[s->order[i]] < min_p)
            return true;
    return false;
}

/* Ends the kept candidates before the first whose weight is below min_p; the largest is 1. */
static void keep_min_p(struct sampler_scratch *s, const float *logits, float min_p,
                       struct kept *kept)
{
    uint32_t n = 0, end = 0;
    double total = 0;

    for (uint32_t b = 0; n == end && n < kept->n; b++) {
        end = s->first[b + 1] < kept->n ? s->first[b + 1] : kept->n;
        if (end < s->first[b + 1] || has_below(s, n, end, min_p))
            sort_bucket(s, logits, b);
        for (; n < end && s->weights[s->order[n]] >= min_p; n++)
            total += s->weights[s->order[n]];
    }
    *kept = (struct kept){.n = n, .total = total};
}

static int32_t draw_limited(const struct sampling *p, struct sampler_scratch *s,
                            const float *logits, uint32_t n, double u)
{
    struct kept kept = {.n = n, .total = 0};
    uint32_t place;
    double reached;

    for (uint32_t b = 0; b < BUCKETS; b++)
        kept.total += s->sum[b];
    if (p->top_k > 0 && (uint32_t)p->top_k < n)
        keep_top_k(s, logits, (uint32_t)p->top_k, &kept);
    if (p->top_p < 1) {
        place = walk(s, logits, &kept, (double)p->top_p * kept.total, true, &reached);
        kept = (struct kept){.n = place + 1, .total = reached};
    }
    if (p->min_p > 0)
        keep_min_p(s, logits, p->min_p, &kept);
    place = walk(s, logits, &kept, u * kept.total, false, &reached);
    return (int32_t)s->order[place];
}

static void drop_below(float *weights, uint32_t n, float min_p)
{
    for (uint32_t i = 0; i < n; i++)
        weights[i] = weights[i] >= min_p ? weights[i] : 0;
}

enum status sampler_pick(const struct sampling *p, uint32_t output_index, const float *logits,
                         uint32_t n_vocab, struct sampler_scratch *scratch, int32_t *out)
{
    enum status s;
    uint32_t top;
    float inverse_t;
    double u;

    if (n_vocab > scratch->n_vocab)
        return ST_INTERNAL;
    s = logits_top(logits, n_vocab, &top);
    if (s != ST_OK)
        return s;
    if (p->temperature < GREEDY_BELOW || p->top_k == 1) {
        *out = (int32_t)top;
        return ST_OK;
    }
    u = sampler_uniform(p->seed, p->choice, output_index);
    inverse_t = 1.0f / p->temperature;
    fill_weights(logits, n_vocab, logits[top], inverse_t, scratch->weights);
    if ((p->top_k <= 0 || (uint32_t)p->top_k >= n_vocab) && p->top_p >= 1) {
        if (p->min_p > 0)
            drop_below(scratch->weights, n_vocab, p->min_p);
        *out = draw_any(scratch, n_vocab, u);
        return ST_OK;
    }
    fill_buckets(scratch, logits, n_vocab, logits[top], inverse_t);
    *out = draw_limited(p, scratch, logits, n_vocab, u);
    return ST_OK;
}

float sampler_logprob(const float *logits, uint32_t n_vocab, int32_t id)
{
    struct logprobs l;

    return logprobs_init(&l, logits, n_vocab) == ST_OK ? logprobs_at(&l, id) : NAN;
}
