#include "engine/cpu/avx512.h"

#include <immintrin.h>

#include "engine/cpu/packed.h"

/* Columns of a tile: 8 x (float sums, integer sums) of the 32 registers. */
#define TILE 8

/* Two groups of 8 rows side by side; an odd last group is paired with itself and stored once. */
struct pair {
    const uint8_t *codes[2], *scales[2];
    size_t row[2];
    bool second;
};

INLINE struct pair pair_of(const struct packed *w, size_t g, bool second, size_t code_bytes)
{
    struct pair p = {.second = second};

    for (int i = 0; i < 2; i++) {
        size_t group = i == 1 && second ? g + 1 : g;

        p.codes[i] = w->data + group * w->group_bytes;
        p.scales[i] = p.codes[i] + w->n_blocks * code_bytes;
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
            _mm_prefetch((const char *)p->codes[half] + at + AHEAD_BYTES + i, _MM_HINT_T0);
}

INLINE __m512i bytes16(const struct pair *p, size_t at)
{
    __m512i low = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(p->codes[0] + at)));

    return _mm512_inserti64x4(low, _mm256_loadu_si256((const void *)(p->codes[1] + at)), 1);
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

/* What codes_of adds to the levels, so that all it gives is unsigned, as dpbusd wants it. */
INLINE int offset_of(const struct quant_form *f)
{
    return f->level == LEVEL_OFFSET ? f->offset : 128;
}

/* The 16 rows' elements 4 quad_at .. 4 quad_at + 3 of the block whose codes begin at `at`. */
INLINE __m512i codes_of(const struct quant_form *f, const struct pair *p, size_t at, size_t quad_at)
{
    const __m512i mask = _mm512_set1_epi8(15), flip = _mm512_set1_epi8(-128);
    __m512i v, levels;

    if (packed_is_bytes(f)) {
        v = bytes16(p, at + 32 * quad_at);
        return f->level == LEVEL_SIGNED ? _mm512_xor_si512(v, flip) : v;
    }
    v = bytes16(p, at + 32 * (quad_at % 4));
    v = _mm512_and_si512(quad_at < 4 ? v : _mm512_srli_epi16(v, 4), mask);
    if (f->level != LEVEL_TABLE)
        return v;
    levels = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)quant_levels));
    return _mm512_shuffle_epi8(_mm512_xor_si512(levels, flip), v);
}

/* d, or m, of a span of the 16 rows' block b. */
INLINE __m512 scales_of(const struct quant_form *f, const struct pair *p, size_t b, uint32_t span,
                        bool m)
{
    __m512 half = halves16(p, packed_f16_at(f, b, m));
    size_t at = packed_factor_at(f, b, span, m);
    __m256i low, high;

    if (!f->super)
        return half;
    low = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p->scales[0] + at)));
    high = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p->scales[1] + at)));
    return _mm512_mul_ps(
        half, _mm512_cvtepi32_ps(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1)));
}

/* One block of 16 rows, and the columns it is multiplied with. */
struct block {
    const struct quant_form *f;
    const struct pair *p;
    size_t b;
    const struct quants *x;
    size_t col; /* the first */
};

INLINE void add_span(const struct block *k, uint32_t span, const int n, __m512 *acc)
{
    const struct quant_form *f = k->f;
    const struct quants *x = k->x;
    const size_t quads = f->split ? 4 : 8, at = k->col * x->ldb + k->b;
    const int8_t *q = x->q + k->col * x->ldq + k->b * QUANT_BLOCK;
    __m512i s[TILE];
    __m512 d, m;

#pragma GCC unroll 8
    for (int c = 0; c < n; c++) /* the offset of the codes, taken off beforehand */
        s[c] = _mm512_set1_epi32(-offset_of(f) * packed_sum(f, x, at + (size_t)c * x->ldb, span));
#pragma GCC unroll 8
    for (size_t j = 0; j < quads; j++) {
        size_t place = span * 4 + j;
        __m512i v = codes_of(f, k->p, k->b * packed_code_bytes(f), place);

#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            s[c] = _mm512_dpbusd_epi32(s[c], v, quad(q + (size_t)c * x->ldq + 4 * place));
    }
    d = scales_of(f, k->p, k->b, span, false);
    m = f->min ? scales_of(f, k->p, k->b, span, true) : d;
#pragma GCC unroll 8
    for (int c = 0; c < n; c++) {
        size_t here = at + (size_t)c * x->ldb;

        acc[c] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x->d[here])),
                                 _mm512_cvtepi32_ps(s[c]), acc[c]);
        if (f->min)
            acc[c] = _mm512_fmadd_ps(m, _mm512_set1_ps(packed_d_sum(f, x, here, span)), acc[c]);
    }
}

INLINE void tile(const struct quant_form *f, const struct packed *w, const struct pair *p,
                 const struct quants *x, size_t col, const int n, const struct outputs *out)
{
    __m512 acc[TILE];

#pragma GCC unroll 8
    for (int c = 0; c < n; c++)
        acc[c] = _mm512_setzero_ps();
    for (size_t b = 0; b < w->n_blocks; b++) {
        const struct block k = {f, p, b, x, col};

        fetch_ahead(p, b * packed_code_bytes(f), packed_code_bytes(f));
        add_span(&k, 0, n, acc);
        if (f->split)
            add_span(&k, 1, n, acc);
    }
#pragma GCC unroll 8
    for (int c = 0; c < n; c++)
        put16(out, col + (size_t)c, p, acc[c]);
}

INLINE void columns(const struct quant_form *f, const struct packed *w, uint32_t first,
                    uint32_t last, const struct quants *x, uint32_t c, const int n,
                    const struct outputs *out)
{
    for (uint32_t g = first; g < last; g += 2) {
        struct pair p = pair_of(w, g, g + 1 < last, packed_code_bytes(f));

        tile(f, w, &p, x, c, n, out);
    }
}

/* Columns outside, groups inside, as in the AVX2 variant. What is left of the columns goes by four,
 * two and one. */
INLINE void matmul(const struct quant_form *f, const struct packed *w, uint32_t first,
                   uint32_t last, const struct quants *x, uint32_t n_cols,
                   const struct outputs *out)
{
    uint32_t c = 0;

    for (; c + TILE <= n_cols; c += TILE)
        columns(f, w, first, last, x, c, TILE, out);
    if (n_cols - c >= 4) {
        columns(f, w, first, last, x, c, 4, out);
        c += 4;
    }
    if (n_cols - c >= 2) {
        columns(f, w, first, last, x, c, 2, out);
        c += 2;
    }
    if (n_cols > c)
        columns(f, w, first, last, x, c, 1, out);
}

#define PACKED_MATMUL(name, type, block_bytes)                                                     \
    static void name##_packed(const struct packed *w, uint32_t first, uint32_t last,               \
                              const struct quants *x, uint32_t n_cols, const struct outputs *out)  \
    {                                                                                              \
        matmul(&quant_forms[type], w, first, last, x, n_cols, out);                                \
    }
EACH_QUANT_TYPE(PACKED_MATMUL)

packed_matmul *const avx512_packed[TENSOR_TYPES] = {EACH_QUANT_TYPE(PACKED_ENTRY)};

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
