#include "engine/cpu/kernels.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "engine/cpu/half.h"
#include "engine/cpu/avx2.h"

#define INLINE static inline __attribute__((always_inline))
#define LANES  8

INLINE float lanes_sum(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float lanes_max(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* The first n (1..8) lanes. */
INLINE __m256i first_lanes(uint32_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* e^x: x = n ln 2 + r, |r| <= ln 2 / 2, and a polynomial of degree 6 (Taylor; its error there is
 * under 1e-7). 0 below the normal range, NaN stays NaN. */
INLINE __m256 exp8(__m256 x)
{
    const __m256 lowest = _mm256_set1_ps(-87.33654f), one = _mm256_set1_ps(1.0f);
    __m256 clamped = _mm256_max_ps(lowest, _mm256_min_ps(_mm256_set1_ps(88.37626f), x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), clamped), p;
    __m256i scale =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);

    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    p = _mm256_set1_ps(1.0f / 720);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(scale));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, lowest, _CMP_LT_OQ), p);
}

/* Magnitudes compare as integers, where NaN is the largest: it must reach d. */
INLINE float block_most(const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    __m128i h;

    for (int i = 0; i < QUANT_BLOCK; i += LANES)
        m = _mm256_max_epi32(
            m, _mm256_and_si256(_mm256_loadu_si256((const void *)(x + i)), magnitude));
    h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1));
    return float_of_bits((uint32_t)_mm_cvtsi128_si32(h));
}

INLINE int32_t sum4(__m128i v)
{
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1));
    return _mm_cvtsi128_si32(v);
}

/* 32 integers to bytes in order, saturating; the bytes' sum, and that of the first 16. */
INLINE void pack_block(const __m256i v[4], int8_t *out, int32_t *sum, int32_t *low_sum)
{
    __m256i a = _mm256_packs_epi32(v[0], v[1]), b = _mm256_packs_epi32(v[2], v[3]);
    __m256i q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b),
                                            _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    __m256i s =
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));

    _mm256_storeu_si256((void *)out, q);
    *low_sum = sum4(_mm256_castsi256_si128(s));
    *sum = *low_sum + sum4(_mm256_extracti128_si256(s, 1));
}

void avx2_quantize(const float *x, size_t k, struct quants *q, uint32_t col)
{
    for (size_t b = 0; b < k / QUANT_BLOCK; b++, x += QUANT_BLOCK) {
        size_t at = col * q->ldb + b;
        float most = block_most(x);
        __m256 inverse = _mm256_set1_ps(most != 0 ? 127.0f / most : 0);
        __m256i v[4];

        for (int i = 0; i < 4; i++)
            v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + LANES * i), inverse));
        q->d[at] = most / 127.0f;
        pack_block(v, q->q + col * q->ldq + b * QUANT_BLOCK, &q->sum[at], &q->low_sum[at]);
        q->d_sum[at] = q->d[at] * (float)q->sum[at];
    }
}

void avx2_rmsnorm(const float *x, const float *weight, uint32_t n, float eps, float *out)
{
    __m256 s = _mm256_setzero_ps(), by;
    float scale;
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        __m256 v = _mm256_loadu_ps(x + i);

        s = _mm256_fmadd_ps(v, v, s);
    }
    if (i < n) {
        __m256 v = _mm256_maskload_ps(x + i, first_lanes(n - i));

        s = _mm256_fmadd_ps(v, v, s);
    }
    scale = 1.0f / sqrtf(lanes_sum(s) / (float)n + eps);
    by = _mm256_set1_ps(scale);
    for (i = 0; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), by),
                                                _mm256_loadu_ps(weight + i)));
    for (; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

INLINE __m256 gelu_mul8(__m256 g, __m256 up)
{
    __m256 cube = _mm256_mul_ps(_mm256_mul_ps(g, g), g);
    __m256 u = _mm256_mul_ps(_mm256_set1_ps(-2.0f * GELU_SCALE),
                             _mm256_fmadd_ps(_mm256_set1_ps(GELU_CUBIC), cube, g));

    return _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), exp8(u))), up);
}

void avx2_gelu_mul(float *gate, const float *up, uint32_t n)
{
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(gate + i, gelu_mul8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i < n) {
        __m256i m = first_lanes(n - i);

        _mm256_maskstore_ps(
            gate + i, m, gelu_mul8(_mm256_maskload_ps(gate + i, m), _mm256_maskload_ps(up + i, m)));
    }
}

/* tanh(u) = 1 - 2 / (exp(2u) + 1) */
INLINE __m256 soft_cap8(__m256 x, __m256 cap, __m256 twice)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 e = exp8(_mm256_mul_ps(x, twice));

    return _mm256_mul_ps(
        cap, _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, one))));
}

void avx2_soft_cap(float *x, uint32_t n, float cap)
{
    const __m256 caps = _mm256_set1_ps(cap), twice = _mm256_set1_ps(2.0f / cap);
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(x + i, soft_cap8(_mm256_loadu_ps(x + i), caps, twice));
    if (i < n) {
        __m256i m = first_lanes(n - i);

        _mm256_maskstore_ps(x + i, m, soft_cap8(_mm256_maskload_ps(x + i, m), caps, twice));
    }
}

INLINE __m256 silu_mul8(__m256 g, __m256 u)
{
    __m256 e = exp8(_mm256_sub_ps(_mm256_setzero_ps(), g));

    return _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), u);
}

static void silu_mul(float *gate, const float *up, uint32_t n)
{
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(gate + i, silu_mul8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i < n) {
        __m256i m = first_lanes(n - i);

        _mm256_maskstore_ps(
            gate + i, m, silu_mul8(_mm256_maskload_ps(gate + i, m), _mm256_maskload_ps(up + i, m)));
    }
}

static void softmax(float *p, uint32_t n, float *max, float *sum)
{
    const __m256 lowest = _mm256_set1_ps(-INFINITY);
    __m256 top = lowest, s = _mm256_setzero_ps();

    for (uint32_t i = n; i % LANES != 0; i++)
        p[i] = -INFINITY; /* its exp is exactly 0 */
    for (uint32_t i = 0; i < n; i += LANES)
        top = _mm256_max_ps(_mm256_loadu_ps(p + i), top);
    *max = lanes_max(top);
    top = _mm256_set1_ps(*max);
    for (uint32_t i = 0; i < n; i += LANES) {
        __m256 e = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + i), top));

        _mm256_storeu_ps(p + i, e);
        s = _mm256_add_ps(s, e);
    }
    *sum = lanes_sum(s);
}

void avx2_scale_add(float *acc, float a, const float *other, float b, uint32_t n)
{
    __m256 va = _mm256_set1_ps(a), vb = _mm256_set1_ps(b);
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(acc + i, _mm256_fmadd_ps(_mm256_loadu_ps(other + i), vb,
                                                  _mm256_mul_ps(_mm256_loadu_ps(acc + i), va)));
    for (; i < n; i++)
        acc[i] = fmaf(other[i], b, acc[i] * a);
}

static uint16_t to_f16(float v)
{
    return (uint16_t)_cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT);
}

void avx2_store_f16(void *k_page, void *v_page, uint32_t t, const float *k, const float *v,
                    uint32_t head_dim, uint32_t head_pad)
{
    uint16_t *kp = k_page, *vp = (uint16_t *)v_page + (size_t)t * head_pad;

    for (uint32_t d = 0; d < head_dim; d++) {
        kp[d * KV_TOKENS + t] = to_f16(k[d]);
        vp[d] = to_f16(v[d]);
    }
}

void avx2_store_f32(void *k_page, void *v_page, uint32_t t, const float *k, const float *v,
                    uint32_t head_dim, uint32_t head_pad)
{
    float *kp = k_page, *vp = (float *)v_page + (size_t)t * head_pad;

    for (uint32_t d = 0; d < head_dim; d++) {
        kp[d * KV_TOKENS + t] = k[d];
        vp[d] = v[d];
    }
}

INLINE __m256 load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

INLINE __m256 load_f32(const void *p)
{
    return _mm256_loadu_ps(p);
}

/* A token per lane, d ascending in one sum each. */
#define QK_PAGE(suffix, type)                                                                      \
    INLINE void qk_tile_##suffix(const float *const *q, float *const *scores, const int n,         \
                                 const type *k, uint32_t head_dim)                                 \
    {                                                                                              \
        __m256 lo[QK_QUERIES], hi[QK_QUERIES];                                                     \
                                                                                                   \
        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) lo[i] = hi[i] = _mm256_setzero_ps();   \
        for (uint32_t d = 0; d < head_dim; d++) {                                                  \
            __m256 a = load_##suffix(k + d * KV_TOKENS), b = load_##suffix(k + d * KV_TOKENS + 8); \
                                                                                                   \
            _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)                                    \
            {                                                                                      \
                __m256 v = _mm256_set1_ps(q[i][d]);                                                \
                                                                                                   \
                lo[i] = _mm256_fmadd_ps(v, a, lo[i]);                                              \
                hi[i] = _mm256_fmadd_ps(v, b, hi[i]);                                              \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)                                        \
        {                                                                                          \
            _mm256_storeu_ps(scores[i], lo[i]);                                                    \
            _mm256_storeu_ps(scores[i] + 8, hi[i]);                                                \
        }                                                                                          \
    }                                                                                              \
    static void qk_page_##suffix(const float *const *q, float *const *scores, uint32_t n_queries,  \
                                 const void *k_page, uint32_t head_dim)                            \
    {                                                                                              \
        BY_QUERIES(n_queries, qk_tile_##suffix, q, scores, k_page, head_dim);                      \
    }

QK_PAGE(f16, uint16_t)
QK_PAGE(f32, float)

/* `n` vectors of the head from `d`: enough independent sums to hide the multiplier's latency. */
#define PV_PAGE(suffix, type)                                                                      \
    INLINE void pv_part_##suffix(const float *p, uint32_t n_tokens, const type *v,                 \
                                 uint32_t head_pad, const int n, float *acc)                       \
    {                                                                                              \
        __m256 s[8];                                                                               \
                                                                                                   \
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) s[i] = _mm256_loadu_ps(acc + 8 * i);   \
        for (uint32_t t = 0; t < n_tokens; t++, v += head_pad) {                                   \
            __m256 by = _mm256_set1_ps(p[t]);                                                      \
                                                                                                   \
            _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) s[i] =                             \
                _mm256_fmadd_ps(by, load_##suffix(v + 8 * i), s[i]);                               \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) _mm256_storeu_ps(acc + 8 * i, s[i]);   \
    }                                                                                              \
    INLINE void pv_query_##suffix(const float *p, uint32_t n_tokens, const type *v,                \
                                  uint32_t head_pad, float *acc)                                   \
    {                                                                                              \
        uint32_t d = 0;                                                                            \
                                                                                                   \
        for (; d + 64 <= head_pad; d += 64)                                                        \
            pv_part_##suffix(p, n_tokens, v + d, head_pad, 8, acc + d);                            \
        for (; d < head_pad; d += 8)                                                               \
            pv_part_##suffix(p, n_tokens, v + d, head_pad, 1, acc + d);                            \
    }                                                                                              \
    static void pv_page_##suffix(const float *const *p, float *const *acc, uint32_t n_queries,     \
                                 uint32_t n_tokens, const void *v_page, uint32_t head_pad)         \
    {                                                                                              \
        for (uint32_t i = 0; i < n_queries; i++)                                                   \
            pv_query_##suffix(p[i], n_tokens, v_page, head_pad, acc[i]);                           \
    }

PV_PAGE(f16, uint16_t)
PV_PAGE(f32, float)

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .decode = avx2_decode,
    .packed = avx2_packed,
    .dot_rows = avx2_dot_rows,
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
    .kv_q8 = {sizeof(int8_t), sizeof(float), avx2_store_q8, avx2_qk_page_q8, avx2_pv_page_q8},
};
