#include "engine/cpu/avx2.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* Columns of a tile: 4 x (float sums, integer sums) and the block's operands fill 16 registers. */
#define TILE 4

/* Holds the compiler to the order written: it would turn the integer sums into trees, whose leaves
 * then don't fit the registers (measured: Q4_1 runs a quarter faster this way, Q8_0 a tenth). */
#define KEEP(v) __asm__("" : "+x"(v))

/* How far ahead of use weights are fetched. They stream from memory once a step, at more bytes per
 * cycle than the hardware's prefetcher keeps up with (measured: 1.25 to 1.5 times the tokens per
 * second; twice or four times the distance made no clear difference). */
#define AHEAD_BYTES 4096

INLINE void fetch_ahead(const uint8_t *p, int bytes)
{
#pragma GCC unroll 4
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + AHEAD_BYTES + i, _MM_HINT_T0);
}

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* 4 consecutive activations in each of the 8 rows' places. */
INLINE __m256i quad(const int8_t *p)
{
    int v;

    __builtin_memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

INLINE __m256 halves(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

INLINE void put8(const struct outputs *out, uint32_t col, size_t row, __m256 v)
{
    float *y = out->y + (size_t)col * out->ld + row;

    if (out->add)
        v = _mm256_add_ps(_mm256_loadu_ps(y), v);
    _mm256_storeu_ps(y, v);
}

/* One group of 8 rows, `n` columns from `col`. Nibbles are 0..15 and activations -127..127, so all
 * 16 products of a 16-bit lane stay within 8 * 2 * 15 * 127 = 30480: no widening inside a block. */
INLINE void tile_q4_1(const struct packed *w, size_t g, const struct quants *x, uint32_t col,
                      const int n, const struct outputs *out)
{
    const uint8_t *p = w->data + g * w->group_bytes;
    const uint8_t *scales = p + (size_t)w->n_blocks * 128;
    const __m256i mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256 acc[TILE];

#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
        acc[c] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < w->n_blocks; b++, p += 128, scales += 32) {
        __m256 d = halves(scales), m = halves(scales + 16);
        __m256i s[TILE];

        fetch_ahead(p, 128);
#pragma GCC unroll 4
        for (int c = 0; c < n; c++)
            s[c] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256i v = load(p + 32 * j), low = _mm256_and_si256(v, mask);
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);

#pragma GCC unroll 4
            for (int c = 0; c < n; c++) {
                const int8_t *q = x->q + (col + (size_t)c) * x->ldq + b * QUANT_BLOCK + 4 * j;

                s[c] = _mm256_add_epi16(s[c], _mm256_maddubs_epi16(low, quad(q)));
                s[c] = _mm256_add_epi16(s[c], _mm256_maddubs_epi16(high, quad(q + 16)));
                KEEP(s[c]);
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < n; c++) {
            size_t at = (col + (size_t)c) * x->ldb + b;
            __m256 sum = _mm256_cvtepi32_ps(_mm256_madd_epi16(s[c], ones));

            acc[c] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x->d[at])), sum, acc[c]);
            acc[c] = _mm256_fmadd_ps(m, _mm256_set1_ps(x->d_sum[at]), acc[c]);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
        put8(out, col + (uint32_t)c, g * PACK_ROWS, acc[c]);
}

/* maddubs wants one side unsigned: |w|, with w's sign moved to the activation. A pair is at most
 * 2 * 128 * 127 = 32512, so each product is widened at once. */
INLINE void tile_q8_0(const struct packed *w, size_t g, const struct quants *x, uint32_t col,
                      const int n, const struct outputs *out)
{
    const uint8_t *p = w->data + g * w->group_bytes;
    const uint8_t *scales = p + (size_t)w->n_blocks * 256;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256 acc[TILE];

#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
        acc[c] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < w->n_blocks; b++, p += 256, scales += 16) {
        __m256 d = halves(scales);
        __m256i s[TILE];

        fetch_ahead(p, 256);
#pragma GCC unroll 4
        for (int c = 0; c < n; c++)
            s[c] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            __m256i v = load(p + 32 * j), magnitude = _mm256_abs_epi8(v);

#pragma GCC unroll 4
            for (int c = 0; c < n; c++) {
                const int8_t *q = x->q + (col + (size_t)c) * x->ldq + b * QUANT_BLOCK + 4 * j;
                __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(quad(q), v));

                s[c] = _mm256_add_epi32(s[c], _mm256_madd_epi16(pairs, ones));
                KEEP(s[c]);
            }
        }
#pragma GCC unroll 4
        for (int c = 0; c < n; c++) {
            size_t at = (col + (size_t)c) * x->ldb + b;

            acc[c] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x->d[at])),
                                     _mm256_cvtepi32_ps(s[c]), acc[c]);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
        put8(out, col + (uint32_t)c, g * PACK_ROWS, acc[c]);
}

/* Columns outside, groups inside: the activations of a tile stay in the first cache, the few groups
 * of one call in the second. */
#define PACKED_MATMUL(name, tile)                                                                  \
    void name(const struct packed *w, uint32_t first, uint32_t last, const struct quants *x,       \
              uint32_t n_cols, const struct outputs *out)                                          \
    {                                                                                              \
        uint32_t c = 0;                                                                            \
                                                                                                   \
        for (; c + TILE <= n_cols; c += TILE)                                                      \
            for (uint32_t g = first; g < last; g++)                                                \
                tile(w, g, x, c, TILE, out);                                                       \
        for (uint32_t g = first; g < last; g++)                                                    \
            if (n_cols - c == 1)                                                                   \
                tile(w, g, x, c, 1, out);                                                          \
            else if (n_cols - c == 2)                                                              \
                tile(w, g, x, c, 2, out);                                                          \
            else if (n_cols - c == 3)                                                              \
                tile(w, g, x, c, 3, out);                                                          \
    }

PACKED_MATMUL(avx2_q4_1_packed, tile_q4_1)
PACKED_MATMUL(avx2_q8_0_packed, tile_q8_0)

INLINE float total(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/* `rows` x `cols` dot products; lane l of each sums the k that are l modulo 8, ascending. */
/* NOLINTNEXTLINE(readability-function-size): rows and cols are constants */
INLINE void tile_dot(const float *w, size_t ldw, const int rows, const float *x, size_t ldx,
                     uint32_t col, const int cols, size_t k_pad, const struct outputs *out)
{
    __m256 acc[DOT_ROWS][2];

    x += col * ldx;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++)
            acc[r][c] = _mm256_setzero_ps();
    for (size_t k = 0; k < k_pad; k += 8) {
        __m256 a[2];

#pragma GCC unroll 2
        for (int c = 0; c < cols; c++)
            a[c] = _mm256_loadu_ps(x + (size_t)c * ldx + k);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m256 v = _mm256_loadu_ps(w + (size_t)r * ldw + k);

#pragma GCC unroll 2
            for (int c = 0; c < cols; c++)
                acc[r][c] = _mm256_fmadd_ps(v, a[c], acc[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++) {
            float *y = out->y + (col + (size_t)c) * out->ld + r, v = total(acc[r][c]);

            *y = out->add ? *y + v : v;
        }
}

INLINE void dot_cols(const float *w, size_t ldw, const int rows, const float *x, size_t ldx,
                     uint32_t n_cols, size_t k_pad, const struct outputs *out)
{
    uint32_t c = 0;

    for (; c + 2 <= n_cols; c += 2)
        tile_dot(w, ldw, rows, x, ldx, c, 2, k_pad, out);
    if (c < n_cols)
        tile_dot(w, ldw, rows, x, ldx, c, 1, k_pad, out);
}

void avx2_dot_rows(const float *w, size_t ldw, uint32_t n_rows, const float *x, size_t ldx,
                   uint32_t n_cols, size_t k_pad, const struct outputs *out)
{
    struct outputs one = *out;

    if (n_rows == DOT_ROWS) {
        dot_cols(w, ldw, DOT_ROWS, x, ldx, n_cols, k_pad, out);
        return;
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        one.y = out->y + r;
        dot_cols(w + r * ldw, ldw, 1, x, ldx, n_cols, k_pad, &one);
    }
}
