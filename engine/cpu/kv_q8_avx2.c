#include "engine/cpu/kv_q8.h"

#include <immintrin.h>
#include <string.h>

#include "engine/cpu/avx2.h"
#include "engine/cpu/half.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES  8u

/* The next LANES of n values, zero past the last. */
INLINE __m256 load_values(const float *x, uint32_t n)
{
    float part[LANES] = {0};

    if (n >= LANES)
        return _mm256_loadu_ps(x);
    memcpy(part, x, n * sizeof *x);
    return _mm256_loadu_ps(part);
}

/* Magnitudes compare as integers, where NaN is the largest. */
INLINE float most_of(const float *x, uint32_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    __m128i h;

    for (uint32_t i = 0; i < n; i += LANES)
        m = _mm256_max_epi32(
            m, _mm256_and_si256(_mm256_castps_si256(load_values(x + i, n - i)), magnitude));
    h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return float_of_bits((uint32_t)_mm_cvtsi128_si32(h));
}

/* LANES codes, the first in the lowest byte. */
INLINE uint64_t codes_of(__m256 x, __m256 inverse)
{
    __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));

    return (uint64_t)_mm_cvtsi128_si64(_mm_packs_epi16(words, words));
}

/* Codes of n values, `stride` bytes apart. */
INLINE void store_codes(const float *x, uint32_t n, float inverse, int8_t *out, uint32_t stride)
{
    __m256 by = _mm256_set1_ps(inverse);

    for (uint32_t i = 0; i < n; i += LANES) {
        uint64_t codes = codes_of(load_values(x + i, n - i), by);

        for (uint32_t j = i; j < n && j < i + LANES; j++, codes >>= 8)
            out[(size_t)j * stride] = (int8_t)(uint8_t)codes;
    }
}

void avx2_store_q8(void *k_part, void *v_part, uint32_t t, const float *k, const float *v,
                   uint32_t head_dim, uint32_t head_pad)
{
    struct q8_factors fk = q8_factors_of(most_of(k, head_dim));
    struct q8_factors fv = q8_factors_of(most_of(v, head_dim));

    q8_scales(k_part)[t] = fk.scale;
    q8_scales(v_part)[t] = fv.scale;
    store_codes(k, head_dim, fk.inverse, q8_codes(k_part) + t, KV_TOKENS);
    store_codes(v, head_dim, fv.inverse, q8_codes(v_part) + (size_t)t * head_pad, 1);
}

INLINE __m256 load_codes(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

/* A token per lane, d ascending in one sum each. */
INLINE void qk_tile(const float *const *q, float *const *scores, const int n, const void *k_part,
                    uint32_t head_dim)
{
    const int8_t *k = q8_codes_of(k_part);
    __m256 s0 = _mm256_loadu_ps(q8_scales_of(k_part)), lo[QK_QUERIES];
    __m256 s1 = _mm256_loadu_ps(q8_scales_of(k_part) + LANES), hi[QK_QUERIES];

    _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) lo[i] = hi[i] = _mm256_setzero_ps();
    for (uint32_t d = 0; d < head_dim; d++, k += KV_TOKENS) {
        __m256 a = load_codes(k), b = load_codes(k + LANES);

        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
        {
            __m256 v = _mm256_set1_ps(q[i][d]);

            lo[i] = _mm256_fmadd_ps(v, a, lo[i]);
            hi[i] = _mm256_fmadd_ps(v, b, hi[i]);
        }
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
    {
        _mm256_storeu_ps(scores[i], _mm256_mul_ps(lo[i], s0));
        _mm256_storeu_ps(scores[i] + LANES, _mm256_mul_ps(hi[i], s1));
    }
}

void avx2_qk_page_q8(const float *const *q, float *const *scores, uint32_t n_queries,
                     const void *k_part, uint32_t head_dim)
{
    BY_QUERIES(n_queries, qk_tile, q, scores, k_part, head_dim);
}

/* Two vectors of the head for n queries: each code is converted once for all of them. */
INLINE void pv_pair(float (*weights)[KV_TOKENS], float *const *acc, const int n, uint32_t at,
                    uint32_t n_tokens, const int8_t *v, uint32_t head_pad)
{
    __m256 lo[QK_QUERIES], hi[QK_QUERIES];

    _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
    {
        lo[i] = _mm256_loadu_ps(acc[i] + at);
        hi[i] = _mm256_loadu_ps(acc[i] + at + LANES);
    }
    for (uint32_t t = 0; t < n_tokens; t++, v += head_pad) {
        __m256 a = load_codes(v), b = load_codes(v + LANES);

        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
        {
            __m256 by = _mm256_set1_ps(weights[i][t]);

            lo[i] = _mm256_fmadd_ps(by, a, lo[i]);
            hi[i] = _mm256_fmadd_ps(by, b, hi[i]);
        }
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
    {
        _mm256_storeu_ps(acc[i] + at, lo[i]);
        _mm256_storeu_ps(acc[i] + at + LANES, hi[i]);
    }
}

/* A last single vector. */
INLINE void pv_vector(const float *weights, float *acc, uint32_t n_tokens, const int8_t *v,
                      uint32_t head_pad)
{
    __m256 s = _mm256_loadu_ps(acc);

    for (uint32_t t = 0; t < n_tokens; t++, v += head_pad)
        s = _mm256_fmadd_ps(_mm256_set1_ps(weights[t]), load_codes(v), s);
    _mm256_storeu_ps(acc, s);
}

INLINE void pv_tile(float (*weights)[KV_TOKENS], float *const *acc, const int n, uint32_t n_tokens,
                    const int8_t *v, uint32_t head_pad)
{
    uint32_t d = 0;

    for (; d + 2 * LANES <= head_pad; d += 2 * LANES)
        pv_pair(weights, acc, n, d, n_tokens, v + d, head_pad);
    for (int i = 0; i < n && d < head_pad; i++)
        pv_vector(weights[i], acc[i] + d, n_tokens, v + d, head_pad);
}

void avx2_pv_page_q8(const float *const *p, float *const *acc, uint32_t n_queries,
                     uint32_t n_tokens, const void *v_part, uint32_t head_pad)
{
    const int8_t *v = q8_codes_of(v_part);
    float weights[QK_QUERIES][KV_TOKENS];

    q8_weigh(p, n_queries, n_tokens, v_part, weights);
    BY_QUERIES(n_queries, pv_tile, weights, acc, n_tokens, v, head_pad);
}
