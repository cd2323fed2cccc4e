#include "engine/model/rope.h"

#include <math.h>

static void plain(double base, uint32_t dims, double *freqs)
{
    for (uint32_t i = 0; i < dims / 2; i++)
        freqs[i] = pow(base, -2.0 * i / dims);
}

static void divide(const struct tensor *divisors, uint32_t n, double *freqs)
{
    const float *by = divisors->data;

    for (uint32_t i = 0; i < n; i++)
        freqs[i] /= by[i];
}

/* The pair that turns `turns` times over the original context. */
static double pair_of(const struct model_rope *r, double turns)
{
    return r->dims * log(r->original_context / (turns * 2 * M_PI)) / (2 * log(r->base));
}

/* Fast pairs keep their frequency, slow ones are divided by the factor, between them it ramps. */
static void yarn(const struct model_rope *r, double *freqs)
{
    double low = floor(pair_of(r, r->beta_fast)), high = ceil(pair_of(r, r->beta_slow));

    low = fmax(low, 0);
    high = fmin(high, r->dims - 1);
    if (high <= low)
        high = low + 0.001;
    for (uint32_t i = 0; i < r->dims / 2; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1), keep = (1 - ramp) * r->ext_factor;

        freqs[i] = freqs[i] / r->factor * (1 - keep) + freqs[i] * keep;
    }
}

void model_rope_frequencies(const struct model_rope *rope, uint32_t context_tokens, bool windowed,
                            double *freqs, float *magnitude)
{
    bool own = windowed && rope->window_base != 0;

    plain(own ? rope->window_base : rope->base, rope->dims, freqs);
    *magnitude = 1.0f;
    if (own)
        return;
    *magnitude = rope->magnitude;
    if (rope->divisors != NULL)
        divide(rope->divisors, rope->dims / 2, freqs);
    if (rope->scaling == ROPE_LINEAR)
        for (uint32_t i = 0; i < rope->dims / 2; i++)
            freqs[i] /= rope->factor;
    else if (rope->scaling == ROPE_YARN)
        yarn(rope, freqs);
    else if (rope->scaling == ROPE_LONGROPE)
        divide(context_tokens > rope->original_context ? rope->long_divisors : rope->short_divisors,
               rope->dims / 2, freqs);
}
