/* KV in 8 bits: x ~ scale * code, codes in [-127, 127], one float scale for each (token, KV head)
 * of K and of V. The scale is the token's own, so what a page holds of a token never depends on
 * which tokens share the page or on when they came.
 *
 * K of a page, layer and head: 16 scales, then codes (head_dim, 16); V: 16 scales, then codes
 * (16, head_pad). A score is the float sum of q * code with d ascending, times the scale; values
 * are weighted by p * scale. Pure; any thread, as long as no two write the same token. */
#ifndef ENGINE_CPU_KV_Q8_H
#define ENGINE_CPU_KV_Q8_H

#include <stdint.h>

#include "engine/cpu/kernels.h"

#define Q8_MOST 127.0f
/* Below this magnitude all codes are 0: the factor to reach 127 would overflow, and no score feels
 * the difference. */
#define Q8_LEAST 0x1p-100f

struct q8_factors {
    float scale, inverse;
};

/* Of the largest magnitude. NaN and infinity make the scale one, so that they reach the logits. */
static inline struct q8_factors q8_factors_of(float most)
{
    return (struct q8_factors){.scale = most / Q8_MOST,
                               .inverse = most < Q8_LEAST ? 0 : Q8_MOST / most};
}

/* Scales (KV_TOKENS) of a K or V page part, and the codes behind them. */
static inline float *q8_scales(void *part)
{
    return part;
}

static inline int8_t *q8_codes(void *part)
{
    return (int8_t *)part + KV_TOKENS * sizeof(float);
}

static inline const float *q8_scales_of(const void *part)
{
    return part;
}

static inline const int8_t *q8_codes_of(const void *part)
{
    return (const int8_t *)part + KV_TOKENS * sizeof(float);
}

/* What each value's codes are multiplied by: p * scale, for n_queries <= QK_QUERIES. */
static inline void q8_weigh(const float *const *p, uint32_t n_queries, uint32_t n_tokens,
                            const void *v_part, float (*weights)[KV_TOKENS])
{
    const float *scales = q8_scales_of(v_part);

    for (uint32_t i = 0; i < n_queries; i++)
        for (uint32_t t = 0; t < n_tokens; t++)
            weights[i][t] = p[i][t] * scales[t];
}

#endif
