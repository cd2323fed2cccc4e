#include "engine/cpu/kernels.h"

#include <immintrin.h>
#include <math.h>

#include "engine/cpu/avx2.h"
#include "engine/cpu/avx512.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES  16

INLINE __mmask16 first_lanes(uint32_t n)
{
    return n >= LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* As the AVX2 one: see there. */
INLINE __m512 exp16(__m512 x)
{
    const __m512 lowest = _mm512_set1_ps(-87.33654f), one = _mm512_set1_ps(1.0f);
    __m512 clamped = _mm512_max_ps(lowest, _mm512_min_ps(_mm512_set1_ps(88.37626f), x));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), clamped), p;
    __m512i scale =
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);

    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    p = _mm512_set1_ps(1.0f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_mul_ps(p, _mm512_castsi512_ps(scale));
    return _mm512_mask_mov_ps(p, _mm512_cmp_ps_mask(x, lowest, _CMP_LT_OQ), _mm512_setzero_ps());
}

static void silu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        __mmask16 m = first_lanes(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i), u = _mm512_maskz_loadu_ps(m, up + i);
        __m512 e = exp16(_mm512_sub_ps(_mm512_setzero_ps(), g));

        _mm512_mask_storeu_ps(
            gate + i, m,
            _mm512_mul_ps(_mm512_div_ps(g, _mm512_add_ps(_mm512_set1_ps(1.0f), e)), u));
    }
}

static void softmax(float *p, uint32_t n, float *max, float *sum)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    __m512 top = lowest, s = _mm512_setzero_ps();

    for (uint32_t i = n; i % 8 != 0; i++)
        p[i] = 0;
    for (uint32_t i = 0; i < n; i += LANES)
        top = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, first_lanes(n - i), p + i), top);
    *max = _mm512_reduce_max_ps(top);
    top = _mm512_set1_ps(*max);
    for (uint32_t i = 0; i < n; i += LANES) {
        __mmask16 m = first_lanes(n - i);
        __m512 e = exp16(_mm512_sub_ps(_mm512_mask_loadu_ps(lowest, m, p + i), top));

        _mm512_mask_storeu_ps(p + i, m, e);
        s = _mm512_mask_add_ps(s, m, s, e);
    }
    *sum = _mm512_reduce_add_ps(s);
}

INLINE __m512 load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

INLINE __m512 load_f32(const float *p)
{
    return _mm512_loadu_ps(p);
}

INLINE __m512 load_part_f16(__mmask16 m, const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p));
}

INLINE __m512 load_part_f32(__mmask16 m, const float *p)
{
    return _mm512_maskz_loadu_ps(m, p);
}

/* The 16 tokens of a page are the 16 lanes; d ascends in one sum each. */
#define QK_PAGE(suffix, type)                                                                      \
    INLINE void qk_tile_##suffix(const float *const *q, float *const *scores, const int n,         \
                                 const type *k, uint32_t head_dim)                                 \
    {                                                                                              \
        __m512 s[QK_QUERIES];                                                                      \
                                                                                                   \
        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) s[i] = _mm512_setzero_ps();            \
        for (uint32_t d = 0; d < head_dim; d++) {                                                  \
            __m512 a = load_##suffix(k + d * KV_TOKENS);                                           \
                                                                                                   \
            _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) s[i] =                             \
                _mm512_fmadd_ps(_mm512_set1_ps(q[i][d]), a, s[i]);                                 \
        }                                                                                          \
        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) _mm512_storeu_ps(scores[i], s[i]);     \
    }                                                                                              \
    static void qk_page_##suffix(const float *const *q, float *const *scores, uint32_t n_queries,  \
                                 const void *k_page, uint32_t head_dim)                            \
    {                                                                                              \
        BY_QUERIES(n_queries, qk_tile_##suffix, q, scores, k_page, head_dim);                      \
    }

QK_PAGE(f16, uint16_t)
QK_PAGE(f32, float)

#define PV_PAGE(suffix, type)                                                                      \
    INLINE void pv_part_##suffix(const float *p, uint32_t n_tokens, const type *v,                 \
                                 uint32_t head_pad, const int n, float *acc)                       \
    {                                                                                              \
        __m512 s[8];                                                                               \
                                                                                                   \
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) s[i] =                                 \
            _mm512_loadu_ps(acc + LANES * i);                                                      \
        for (uint32_t t = 0; t < n_tokens; t++, v += head_pad) {                                   \
            __m512 by = _mm512_set1_ps(p[t]);                                                      \
                                                                                                   \
            _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) s[i] =                             \
                _mm512_fmadd_ps(by, load_##suffix(v + LANES * i), s[i]);                           \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++)                                        \
            _mm512_storeu_ps(acc + LANES * i, s[i]);                                               \
    }                                                                                              \
    INLINE void pv_tail_##suffix(const float *p, uint32_t n_tokens, const type *v,                 \
                                 uint32_t head_pad, __mmask16 m, float *acc)                       \
    {                                                                                              \
        __m512 s = _mm512_maskz_loadu_ps(m, acc);                                                  \
                                                                                                   \
        for (uint32_t t = 0; t < n_tokens; t++, v += head_pad)                                     \
            s = _mm512_fmadd_ps(_mm512_set1_ps(p[t]), load_part_##suffix(m, v), s);                \
        _mm512_mask_storeu_ps(acc, m, s);                                                          \
    }                                                                                              \
    INLINE void pv_query_##suffix(const float *p, uint32_t n_tokens, const type *v,                \
                                  uint32_t head_pad, float *acc)                                   \
    {                                                                                              \
        uint32_t d = 0;                                                                            \
                                                                                                   \
        for (; d + 128 <= head_pad; d += 128)                                                      \
            pv_part_##suffix(p, n_tokens, v + d, head_pad, 8, acc + d);                            \
        for (; d + 64 <= head_pad; d += 64)                                                        \
            pv_part_##suffix(p, n_tokens, v + d, head_pad, 4, acc + d);                            \
        for (; d < head_pad; d += LANES)                                                           \
            pv_tail_##suffix(p, n_tokens, v + d, head_pad, first_lanes(head_pad - d), acc + d);    \
    }                                                                                              \
    static void pv_page_##suffix(const float *const *p, float *const *acc, uint32_t n_queries,     \
                                 uint32_t n_tokens, const void *v_page, uint32_t head_pad)         \
    {                                                                                              \
        for (uint32_t i = 0; i < n_queries; i++)                                                   \
            pv_query_##suffix(p[i], n_tokens, v_page, head_pad, acc[i]);                           \
    }

PV_PAGE(f16, uint16_t)
PV_PAGE(f32, float)

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .decode = avx2_decode,
    .packed = avx512_packed,
    .dot_rows = avx512_dot_rows,
    .quantize = avx2_quantize,
    .rmsnorm = avx2_rmsnorm,
    .rope = avx2_rope,
    .rope_halves = avx2_rope_halves,
    .silu_mul = silu_mul,
    .gelu_mul = avx2_gelu_mul,
    .soft_cap = avx2_soft_cap,
    .softmax = softmax,
    .scale_add = avx2_scale_add,
    .kv_f16 = {sizeof(uint16_t), 0, avx2_store_f16, qk_page_f16, pv_page_f16},
    .kv_f32 = {sizeof(float), 0, avx2_store_f32, qk_page_f32, pv_page_f32},
    .kv_q8 = {sizeof(int8_t), sizeof(float), avx2_store_q8, avx512_qk_page_q8, avx512_pv_page_q8},
};
