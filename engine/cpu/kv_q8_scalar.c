#include "engine/cpu/kv_q8.h"

#include <math.h>

#include "engine/cpu/half.h"
#include "engine/cpu/scalar.h"

/* Magnitudes compare as integers, where NaN is the largest. */
static float most_of(const float *x, uint32_t n)
{
    uint32_t top = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t magnitude = bits_of_float(x[i]) & 0x7fffffff;

        top = magnitude > top ? magnitude : top;
    }
    return float_of_bits(top);
}

/* To nearest even, as the vector conversion; it gives the least integer for NaN, which saturates.
 */
static int8_t to_code(float v)
{
    float r = rintf(v);

    return r >= -128 && r <= 127 ? (int8_t)r : -128;
}

void scalar_store_q8(void *k_part, void *v_part, uint32_t t, const float *k, const float *v,
                     uint32_t head_dim, uint32_t head_pad)
{
    struct q8_factors fk = q8_factors_of(most_of(k, head_dim));
    struct q8_factors fv = q8_factors_of(most_of(v, head_dim));
    int8_t *kc = q8_codes(k_part), *vc = q8_codes(v_part) + (size_t)t * head_pad;

    q8_scales(k_part)[t] = fk.scale;
    q8_scales(v_part)[t] = fv.scale;
    for (uint32_t d = 0; d < head_dim; d++) {
        kc[d * KV_TOKENS + t] = to_code(k[d] * fk.inverse);
        vc[d] = to_code(v[d] * fv.inverse);
    }
}

void scalar_qk_page_q8(const float *const *q, float *const *scores, uint32_t n_queries,
                       const void *k_part, uint32_t head_dim)
{
    const float *scales = q8_scales_of(k_part);
    const int8_t *codes = q8_codes_of(k_part);

    for (uint32_t i = 0; i < n_queries; i++)
        for (uint32_t t = 0; t < KV_TOKENS; t++) {
            float acc = 0;

            for (uint32_t d = 0; d < head_dim; d++)
                acc += q[i][d] * (float)codes[d * KV_TOKENS + t];
            scores[i][t] = acc * scales[t];
        }
}

void scalar_pv_page_q8(const float *const *p, float *const *acc, uint32_t n_queries,
                       uint32_t n_tokens, const void *v_part, uint32_t head_pad)
{
    const float *scales = q8_scales_of(v_part);
    const int8_t *codes = q8_codes_of(v_part);

    for (uint32_t t = 0; t < n_tokens; t++, codes += head_pad)
        for (uint32_t i = 0; i < n_queries; i++) {
            float by = p[i][t] * scales[t];

            for (uint32_t d = 0; d < head_pad; d++)
                acc[i][d] += by * (float)codes[d];
        }
}
