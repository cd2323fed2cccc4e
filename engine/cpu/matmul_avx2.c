#include "engine/cpu/avx2.h"

#include <immintrin.h>

#include "engine/cpu/packed.h"

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

/* Codes of the 8 rows' elements 4 quad .. 4 quad + 3, as levels where those are signed. */
INLINE __m256i codes_of(const struct quant_form *f, const uint8_t *p, int quad_at)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i v;

    if (packed_is_bytes(f))
        return load(p + 32 * quad_at);
    v = load(p + 32 * (quad_at % 4));
    v = _mm256_and_si256(quad_at < 4 ? v : _mm256_srli_epi16(v, 4), mask);
    if (f->level != LEVEL_TABLE)
        return v;
    return _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)quant_levels)), v);
}

/* maddubs wants one side unsigned. Codes are; of signed levels it gets |level|, with the sign moved
 * to the activation. */
INLINE __m256i products(const struct quant_form *f, __m256i codes, __m256i magnitudes, __m256i x)
{
    if (f->level == LEVEL_OFFSET)
        return _mm256_maddubs_epi16(codes, x);
    return _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(x, codes));
}

/* How many pairs of products a 16-bit lane can add up: activations are -127..127, and
 * 8 * 2 * 15, 4 * 2 * 31, 2 * 2 * 63 and 2 * 128, times 127, stay below 32768. */
INLINE int lane_pairs(const struct quant_form *f)
{
    if (f->level != LEVEL_OFFSET)
        return 1;
    return f->max_code <= 15 ? 8 : f->max_code <= 31 ? 4 : 2;
}

/* Place of the j-th quad of a span. With nibbles the two that share bytes follow each other. */
INLINE int quad_place(const struct quant_form *f, uint32_t span, int j)
{
    if (f->split)
        return 4 * (int)span + j;
    return packed_is_bytes(f) ? j : j / 2 + j % 2 * 4;
}

/* One block of a group of 8 rows, and the columns it is multiplied with. */
struct block {
    const struct quant_form *f;
    const uint8_t *codes;
    const uint8_t *scales; /* the block's, or its super-block's */
    uint32_t part;         /* its place in that */
    size_t b;              /* its place in the row */
    const struct quants *x;
    size_t col; /* the first */
};

/* s[c] += the quads [from, from + count) of a span times column c's; their sums fit 16 bits. */
INLINE void add_quads(const struct block *k, uint32_t span, const int from, const int count,
                      const int n, __m256i *s)
{
    const int8_t *q = k->x->q + k->col * k->x->ldq + k->b * QUANT_BLOCK;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i t[TILE];

#pragma GCC unroll 8
    for (int j = 0; j < count; j++) {
        int place = quad_place(k->f, span, from + j);
        __m256i v = codes_of(k->f, k->codes, place), magnitudes = _mm256_abs_epi8(v);

#pragma GCC unroll 4
        for (int c = 0; c < n; c++) {
            __m256i a = quad(q + (size_t)c * k->x->ldq + 4 * place);
            __m256i pairs = products(k->f, v, magnitudes, a);

            t[c] = j == 0 ? pairs : _mm256_add_epi16(t[c], pairs);
            KEEP(t[c]);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < n; c++) {
        s[c] = _mm256_add_epi32(s[c], _mm256_madd_epi16(t[c], ones));
        KEEP(s[c]);
    }
}

/* d, or m, of a span of the 8 rows' block. */
INLINE __m256 scales_of(const struct block *k, uint32_t span, bool m)
{
    __m256 half = halves(k->scales + packed_f16_at(k->f, k->part, m));
    const uint8_t *at = k->scales + packed_factor_at(k->f, k->part, span, m);
    __m128i factors;

    if (!k->f->super)
        return half;
    factors = _mm_loadl_epi64((const void *)at);
    return _mm256_mul_ps(half, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(factors)));
}

INLINE void add_span(const struct block *k, uint32_t span, const int n, __m256 *acc)
{
    const struct quant_form *f = k->f;
    const struct quants *x = k->x;
    const int quads = f->split ? 4 : 8;
    const int count = lane_pairs(f) < quads ? lane_pairs(f) : quads;
    const size_t at = k->col * x->ldb + k->b;
    __m256i s[TILE];
    __m256 d, m;

#pragma GCC unroll 4
    for (int c = 0; c < n; c++) /* the offset of the codes, taken off beforehand */
        s[c] =
            f->offset == 0
                ? _mm256_setzero_si256()
                : _mm256_set1_epi32(-f->offset * packed_sum(f, x, at + (size_t)c * x->ldb, span));
#pragma GCC unroll 8
    for (int from = 0; from < quads; from += count)
        add_quads(k, span, from, count, n, s);
    d = scales_of(k, span, false);
    m = f->min ? scales_of(k, span, true) : d;
#pragma GCC unroll 4
    for (int c = 0; c < n; c++) {
        size_t here = at + (size_t)c * x->ldb;

        acc[c] = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x->d[here])),
                                 _mm256_cvtepi32_ps(s[c]), acc[c]);
        if (f->min)
            acc[c] = _mm256_fmadd_ps(m, _mm256_set1_ps(packed_d_sum(f, x, here, span)), acc[c]);
    }
}

/* One group of 8 rows, `n` columns from `col`. */
INLINE void tile(const struct quant_form *f, const struct packed *w, size_t g,
                 const struct quants *x, uint32_t col, const int n, const struct outputs *out)
{
    const uint8_t *codes = w->data + g * w->group_bytes;
    const uint8_t *scales = codes + w->n_blocks * packed_code_bytes(f);
    const uint32_t parts = f->super ? SUPER_BLOCKS : 1;
    __m256 acc[TILE];

#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
        acc[c] = _mm256_setzero_ps();
    for (size_t b = 0; b < w->n_blocks; b += parts, scales += packed_scale_stride(f))
        for (uint32_t part = 0; part < parts; part++, codes += packed_code_bytes(f)) {
            const struct block k = {f, codes, scales, part, b + part, x, col};

            fetch_ahead(codes, (int)packed_code_bytes(f));
            add_span(&k, 0, n, acc);
            if (f->split)
                add_span(&k, 1, n, acc);
        }
#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
        put8(out, col + (uint32_t)c, g * PACK_ROWS, acc[c]);
}

/* Columns outside, groups inside: the activations of a tile stay in the first cache, the few groups
 * of one call in the second. */
INLINE void matmul(const struct quant_form *f, const struct packed *w, uint32_t first,
                   uint32_t last, const struct quants *x, uint32_t n_cols,
                   const struct outputs *out)
{
    uint32_t c = 0;

    for (; c + TILE <= n_cols; c += TILE)
        for (uint32_t g = first; g < last; g++)
            tile(f, w, g, x, c, TILE, out);
    for (uint32_t g = first; g < last; g++)
        if (n_cols - c == 1)
            tile(f, w, g, x, c, 1, out);
        else if (n_cols - c == 2)
            tile(f, w, g, x, c, 2, out);
        else if (n_cols - c == 3)
            tile(f, w, g, x, c, 3, out);
}

#define PACKED_MATMUL(name, type, block_bytes)                                                     \
    static void name##_packed(const struct packed *w, uint32_t first, uint32_t last,               \
                              const struct quants *x, uint32_t n_cols, const struct outputs *out)  \
    {                                                                                              \
        matmul(&quant_forms[type], w, first, last, x, n_cols, out);                                \
    }
EACH_QUANT_TYPE(PACKED_MATMUL)

packed_matmul *const avx2_packed[TENSOR_TYPES] = {EACH_QUANT_TYPE(PACKED_ENTRY)};

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
