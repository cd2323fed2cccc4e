/* What temperature, top_k, top_p and min_p mean, by a plain sort in double, and the chi-square test
 * of draws against it. Included by the tests of the sampler. */
#ifndef TESTS_UNIT_ENGINE_CORE_SAMPLING_REFERENCE_H
#define TESTS_UNIT_ENGINE_CORE_SAMPLING_REFERENCE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/core/sampler.h"

#define REFERENCE_VOCAB 1000u

static const float *reference_key;

static int reference_compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    if (reference_key[x] != reference_key[y])
        return reference_key[x] > reference_key[y] ? -1 : 1;
    return x - y;
}

/* The candidates that are kept, descending: ids, and weights relative to the first one's. `slack`
 * widens (or, negative, narrows) top_p and min_p by that part of themselves. */
struct reference_kept {
    uint32_t n;
    int ids[REFERENCE_VOCAB];
    double weights[REFERENCE_VOCAB], total;
};

static void reference_keep(const struct sampling *p, const float *logits, uint32_t n, double slack,
                           struct reference_kept *out)
{
    uint32_t keep = p->top_k > 0 && (uint32_t)p->top_k < n ? (uint32_t)p->top_k : n, i;
    double total = 0, reached = 0;

    for (i = 0; i < n; i++)
        out->ids[i] = (int)i;
    reference_key = logits;
    qsort(out->ids, n, sizeof out->ids[0], reference_compare);
    for (i = 0; i < keep; i++) {
        double below = (double)logits[out->ids[i]] - (double)logits[out->ids[0]];

        out->weights[i] = exp(below / (double)p->temperature);
        total += out->weights[i];
    }
    for (i = 0; p->top_p < 1 && i < keep && reached < (double)p->top_p * (1 + slack) * total; i++)
        reached += out->weights[i];
    keep = p->top_p < 1 ? i : keep;
    out->total = 0;
    for (i = 0; i < keep && out->weights[i] >= (double)p->min_p * (1 - slack); i++)
        out->total += out->weights[i];
    out->n = i;
}

/* Upper value of chi-square with k degrees of freedom that is passed with probability 1e-6 (its
 * normal quantile is 4.7534), by Wilson and Hilferty (1931). */
static double chi_square_critical(int k)
{
    double v = 2.0 / (9.0 * k), cube = 1 - v + 4.7534 * sqrt(v);

    return k * cube * cube * cube;
}

enum { REFERENCE_DRAWS = 20000 };

/* Chi-square of 20,000 draws, seen[id] of each. Ids that expect fewer than 5 draws are one cell,
 * which is left out when it too expects fewer. False also when an id came that can't. */
static bool reference_accepts(const struct sampling *p, const float *logits, uint32_t n,
                              const int *seen)
{
    static struct reference_kept kept;
    double chi = 0, pooled = 0, pooled_seen = 0, drawn = 0;
    int cells = 0;

    reference_keep(p, logits, n, 0, &kept);
    for (uint32_t i = 0; i < kept.n; i++) {
        double e = kept.weights[i] / kept.total * REFERENCE_DRAWS, o = seen[kept.ids[i]];

        drawn += o;
        if (e < 5) {
            pooled += e;
            pooled_seen += o;
            continue;
        }
        chi += (o - e) * (o - e) / e;
        cells++;
    }
    if (pooled >= 5) {
        chi += (pooled_seen - pooled) * (pooled_seen - pooled) / pooled;
        cells++;
    }
    return drawn == REFERENCE_DRAWS && (cells < 2 || chi < chi_square_critical(cells - 1));
}

#endif
