#include "engine/cpu/avx512.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* Columns of a tile: 8 x (float sums, integer sums) of the 32 registers. */
#define TILE 8

/* Two groups of 8 rows side by side; an odd last group is paired with itself and stored once. */
struct pair {
    const uint8_t *quants[2], *scales[2];
    size_t row[2];
    bool second;
};

INLINE struct pair pair_of(const struct packed *w, size_t g, bool second, size_t quant_bytes)
{
    struct pair p = {.second = second};

    for (int i = 0; i < 2; i++) {
        size_t group = i == 1 && second ? g + 1 : g;

        p.quants[i] = w->data + group * w->group_bytes;
        p.scales[i] = p.quants[i] + w->n_blocks * quant_bytes;
        p.row[i] = group * PACK_ROWS;
    }
    return p;
}

/* As far ahead, and for the same reason, as in the AVX2 variant. */
#define AHEAD_BYTES 4096

INLINE void fetch_ahead(const struct pair *p, size_t at, size_t bytes)
{
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
        for (size_t i = 0; i < bytes; i += 64)
            _mm_prefetch((const char *)p->quants[half] + at + AHEAD_BYTES + i, _MM_HINT_T0);
}

INLINE __m512i quants16(const struct pair *p, size_t at)
{
    __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(p->quants[0] + at)));

    return _mm512_inserti64x4(low, _mm256_loadu_si256((const void *)(p->quants[1] + at)), 1);
}

INLINE __m512 halves16(const struct pair *p, size_t at)
{
    __m256i low = _mm256_castsi128_si256(_mm_loadu_si128((const void *)(p->scales[0] + at)));

    return _mm512_cvtph_ps(
        _mm256_inserti128_si256(low, _mm_loadu_si128((const void *)(p->scales[1] + at)), 1));
}

INLINE __m512i quad(const int8_t *p)
{
    int v;

    __builtin_memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

INLINE void put_half(const struct outputs *out, size_t col, size_t row, __m256 v)
{
    float *y = out->y + col * out->ld + row;

    if (out->add)
        v = _mm256_add_ps(_mm256_loadu_ps(y), v);
    _mm256_storeu_ps(y, v);
}

INLINE void put16(const struct outputs *out, size_t col, const struct pair *p, __m512 v)
{
    put_half(out, col, p->row[0], _mm512_castps512_ps256(v));
    if (p->second)
        put_half(out, col, p->row[1], _mm512_extractf32x8_ps(v, 1));
}

INLINE void tile_q4_1(const struct packed *w, const struct pair *p, const struct quants *x,
                      size_t col, const int n, const struct outputs *out)
{
    const __m512i mask = _mm512_set1_epi8(15);
    __m512 acc[TILE];

#pragma GCC unroll 8
    for (int c = 0; c < n; c++)
        acc[c] = _mm512_setzero_ps();
    for (size_t b = 0; b < w->n_blocks; b++) {
        __m512 d = halves16(p, b * 32), m = halves16(p, b * 32 + 16);
        __m512i s[TILE];

        fetch_ahead(p, b * 128, 128);
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            s[c] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++) {
            __m512i v = quants16(p, b * 128 + 32 * j), low = _mm512_and_si512(v, mask);
            __m512i high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);

#pragma GCC unroll 8
            for (int c = 0; c < n; c++) {
                const int8_t *q = x->q + (col + (size_t)c) * x->ldq + b * QUANT_BLOCK + 4 * j;

                s[c] = _mm512_dpbusd_epi32(s[c], low, quad(q));
                s[c] = _mm512_dpbusd_epi32(s[c], high, quad(q + 16));
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < n; c++) {
            size_t at = (col + (size_t)c) * x->ldb + b;

            acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x->d[at])),
                                     _mm512_cvtepi32_ps(s[c]), acc[c]);
            acc[c] = _mm512_fmadd_ps(m, _mm512_set1_ps(x->d_sum[at]), acc[c]);
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < n; c++)
        put16(out, col + (size_t)c, p, acc[c]);
}

/* dpbusd wants the weights unsigned: w + 128, which adds 128 times the block's sum of activations;
 * starting from its negative takes it off again, exactly. */
INLINE void tile_q8_0(const struct packed *w, const struct pair *p, const struct quants *x,
                      size_t col, const int n, const struct outputs *out)
{
    const __m512i flip = _mm512_set1_epi8(-128);
    __m512 acc[TILE];

#pragma GCC unroll 8
    for (int c = 0; c < n; c++)
        acc[c] = _mm512_setzero_ps();
    for (size_t b = 0; b < w->n_blocks; b++) {
        __m512 d = halves16(p, b * 16);
        __m512i s[TILE];

        fetch_ahead(p, b * 256, 256);
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            s[c] = _mm512_set1_epi32(-128 * x->sum[(col + (size_t)c) * x->ldb + b]);
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++) {
            __m512i v = _mm512_xor_si512(quants16(p, b * 256 + 32 * j), flip);

#pragma GCC unroll 8
            for (int c = 0; c < n; c++)
                s[c] = _mm512_dpbusd_epi32(
                    s[c], v, quad(x->q + (col + (size_t)c) * x->ldq + b * QUANT_BLOCK + 4 * j));
        }
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            acc[c] = _mm512_fmadd_ps(
                _mm512_mul_ps(d, _mm512_set1_ps(x->d[(col + (size_t)c) * x->ldb + b])),
                _mm512_cvtepi32_ps(s[c]), acc[c]);
    }
#pragma GCC unroll 8
    for (int c = 0; c < n; c++)
        put16(out, col + (size_t)c, p, acc[c]);
}

/* Columns outside, groups inside, as in the AVX2 variant. What is left of the columns goes one by
 * one past the last four. */
#define PACKED_MATMUL(name, tile, quant_bytes)                                                     \
    static void name##_columns(const struct packed *w, uint32_t first, uint32_t last,              \
                               const struct quants *x, uint32_t c, uint32_t n,                     \
                               const struct outputs *out)                                          \
    {                                                                                              \
        for (uint32_t g = first; g < last; g += 2) {                                               \
            struct pair p = pair_of(w, g, g + 1 < last, quant_bytes);                              \
                                                                                                   \
            if (n == TILE)                                                                         \
                tile(w, &p, x, c, TILE, out);                                                      \
            else if (n == 4)                                                                       \
                tile(w, &p, x, c, 4, out);                                                         \
            else if (n == 2)                                                                       \
                tile(w, &p, x, c, 2, out);                                                         \
            else                                                                                   \
                tile(w, &p, x, c, 1, out);                                                         \
        }                                                                                          \
    }                                                                                              \
    void name(const struct packed *w, uint32_t first, uint32_t last, const struct quants *x,       \
              uint32_t n_cols, const struct outputs *out)                                          \
    {                                                                                              \
        uint32_t c = 0;                                                                            \
                                                                                                   \
        for (uint32_t n = TILE; n > 0; n /= 2)                                                     \
            for (; c + n <= n_cols; c += n)                                                        \
                name##_columns(w, first, last, x, c, n, out);                                      \
    }

PACKED_MATMUL(avx512_q4_1_packed, tile_q4_1, 128)
PACKED_MATMUL(avx512_q8_0_packed, tile_q8_0, 256)

/* `rows` x `cols` dot products; lane l of each sums the k that are l modulo 16, ascending. */
/* NOLINTNEXTLINE(readability-function-size): rows and cols are constants */
INLINE void tile_dot(const float *w, size_t ldw, const int rows, const float *x, size_t ldx,
                     uint32_t col, const int cols, size_t k_pad, const struct outputs *out)
{
    __m512 acc[DOT_ROWS][4];

    x += col * ldx;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            acc[r][c] = _mm512_setzero_ps();
    for (size_t k = 0; k < k_pad; k += 16) {
        __m512 a[4];

#pragma GCC unroll 4
        for (int c = 0; c < cols; c++)
            a[c] = _mm512_loadu_ps(x + (size_t)c * ldx + k);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            __m512 v = _mm512_loadu_ps(w + (size_t)r * ldw + k);

#pragma GCC unroll 4
            for (int c = 0; c < cols; c++)
                acc[r][c] = _mm512_fmadd_ps(v, a[c], acc[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            float *y = out->y + (col + (size_t)c) * out->ld + r;
            float v = _mm512_reduce_add_ps(acc[r][c]);

            *y = out->add ? *y + v : v;
        }
}

INLINE void dot_cols(const float *w, size_t ldw, const int rows, const float *x, size_t ldx,
                     uint32_t n_cols, size_t k_pad, const struct outputs *out)
{
    uint32_t c = 0;

    for (; c + 4 <= n_cols; c += 4)
        tile_dot(w, ldw, rows, x, ldx, c, 4, k_pad, out);
    for (; c < n_cols; c++)
        tile_dot(w, ldw, rows, x, ldx, c, 1, k_pad, out);
}

void avx512_dot_rows(const float *w, size_t ldw, uint32_t n_rows, const float *x, size_t ldx,
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
