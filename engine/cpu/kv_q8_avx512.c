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
    if (n_queries == 4)
        qk_tile(q, scores, 4, k_part, head_dim);
    else if (n_queries == 3)
        qk_tile(q, scores, 3, k_part, head_dim);
    else if (n_queries == 2)
        qk_tile(q, scores, 2, k_part, head_dim);
    else if (n_queries == 1)
        qk_tile(q, scores, 1, k_part, head_dim);
}

/* `n` vectors of the head from acc: independent sums. */
INLINE void pv_tile(const float *weights, uint32_t n_tokens, const int8_t *v, uint32_t head_pad,
                    const int n, float *acc)
{
    __m512 s[8];

    _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) s[i] =
        _mm512_loadu_ps(acc + LANES * (uint32_t)i);
    for (uint32_t t = 0; t < n_tokens; t++, v += head_pad) {
        __m512 by = _mm512_set1_ps(weights[t]);

        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) s[i] =
            _mm512_fmadd_ps(by, load_codes(v + LANES * (uint32_t)i), s[i]);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < n; i++)
        _mm512_storeu_ps(acc + LANES * (uint32_t)i, s[i]);
}

/* The last half vector of a head: head_pad is a multiple of 8. */
INLINE void pv_half(const float *weights, uint32_t n_tokens, const int8_t *v, uint32_t head_pad,
                    float *acc)
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

void avx512_pv_page_q8(const float *p, uint32_t n_tokens, const void *v_part, uint32_t head_pad,
                       float *acc)
{
    const int8_t *v = q8_codes_of(v_part);
    float weights[KV_TOKENS];
    uint32_t d = 0;

    for (uint32_t t = 0; t < n_tokens; t++)
        weights[t] = p[t] * q8_scales_of(v_part)[t];
    for (; d + 8 * LANES <= head_pad; d += 8 * LANES)
        pv_tile(weights, n_tokens, v + d, head_pad, 8, acc + d);
    for (; d + 4 * LANES <= head_pad; d += 4 * LANES)
        pv_tile(weights, n_tokens, v + d, head_pad, 4, acc + d);
    for (; d + LANES <= head_pad; d += LANES)
        pv_tile(weights, n_tokens, v + d, head_pad, 1, acc + d);
    if (d < head_pad)
        pv_half(weights, n_tokens, v + d, head_pad, acc + d);
}
