#include "engine/cpu/kv_q8.h"

#include <immintrin.h>

#include "engine/cpu/avx512.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES  16u

INLINE __m512 load_codes(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

/* The 16 tokens of a page are the 16 lanes; d ascends in one sum each. */
INLINE void qk_tile(const float *const *q, float *const *scores, const int n, const void *k_part,
                    uint32_t head_dim)
{
    const int8_t *k = q8_codes_of(k_part);
    __m512 scales = _mm512_loadu_ps(q8_scales_of(k_part)), s[QK_QUERIES];

    _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) s[i] = _mm512_setzero_ps();
    for (uint32_t d = 0; d < head_dim; d++, k += KV_TOKENS) {
        __m512 a = load_codes(k);

        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) s[i] =
            _mm512_fmadd_ps(_mm512_set1_ps(q[i][d]), a, s[i]);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
        _mm512_storeu_ps(scores[i], _mm512_mul_ps(s[i], scales));
}

void avx512_qk_page_q8(const float *const *q, float *const *scores, uint32_t n_queries,
                       const void *k_part, uint32_t head_dim)
{
    BY_QUERIES(n_queries, qk_tile, q, scores, k_part, head_dim);
}

/* A vector of the head for n queries: each code is converted once for all of them. */
INLINE void pv_vector(float (*weights)[KV_TOKENS], float *const *acc, const int n, uint32_t at,
                      uint32_t n_tokens, const int8_t *v, uint32_t head_pad)
{
    __m512 s[QK_QUERIES];

    _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) s[i] = _mm512_loadu_ps(acc[i] + at);
    for (uint32_t t = 0; t < n_tokens; t++, v += head_pad) {
        __m512 a = load_codes(v);

        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) s[i] =
            _mm512_fmadd_ps(_mm512_set1_ps(weights[i][t]), a, s[i]);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) _mm512_storeu_ps(acc[i] + at, s[i]);
}

/* The last half vector of a head: head_pad is a multiple of 8. */
INLINE void pv_half(const float *weights, float *acc, uint32_t n_tokens, const int8_t *v,
                    uint32_t head_pad)
{
    const __mmask16 half = 0xff;
    __m512 s = _mm512_maskz_loadu_ps(half, acc);

    for (uint32_t t = 0; t < n_tokens; t++, v += head_pad) {
        __m128i codes = _mm_loadl_epi64((const void *)v);

        s = _mm512_fmadd_ps(_mm512_set1_ps(weights[t]),
                            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)), s);
    }
    _mm512_mask_storeu_ps(acc, half, s);
}

INLINE void pv_tile(float (*weights)[KV_TOKENS], float *const *acc, const int n, uint32_t n_tokens,
                    const int8_t *v, uint32_t head_pad)
{
    uint32_t d = 0;

    for (; d + LANES <= head_pad; d += LANES)
        pv_vector(weights, acc, n, d, n_tokens, v + d, head_pad);
    for (int i = 0; i < n && d < head_pad; i++)
        pv_half(weights[i], acc[i] + d, n_tokens, v + d, head_pad);
}

void avx512_pv_page_q8(const float *const *p, float *const *acc, uint32_t n_queries,
                       uint32_t n_tokens, const void *v_part, uint32_t head_pad)
{
    const int8_t *v = q8_codes_of(v_part);
    float weights[QK_QUERIES][KV_TOKENS];

    q8_weigh(p, n_queries, n_tokens, v_part, weights);
    BY_QUERIES(n_queries, pv_tile, weights, acc, n_tokens, v, head_pad);
}
