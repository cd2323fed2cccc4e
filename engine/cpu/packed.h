/* Weights of quantized types, repacked so that one multiply serves 8 outputs without a horizontal
 * sum. A group is PACK_ROWS rows: first the codes of all blocks of 32 inputs, then their scales.
 *
 *   codes of a block   vector j (32 bytes) holds, for row 0..7, 4 bytes of that row. Types of at
 *                      most 4 bits: 4 vectors of nibbles, byte 4j + i of a row is element 4j + i in
 *                      its low and 4j + i + 16 in its high half. Others: 8 vectors of bytes.
 *   scales             for each block: 8 x f16 d, then, where the type has it, 8 x f16 m
 *   ... super-blocks   for each of its 8 blocks: 8 bytes, the rows' factors of d, for each span;
 *                      likewise of m, where the type has it; then, once, the f16 as above
 *
 * What a type's codes mean is in quant_types.h. Rows past the last are zero. Pure; any thread. */
#ifndef ENGINE_CPU_PACKED_H
#define ENGINE_CPU_PACKED_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/quant_types.h"

INLINE bool packed_is_bytes(const struct quant_form *f)
{
    return f->max_code > 15;
}

INLINE uint32_t packed_spans(const struct quant_form *f)
{
    return f->split ? 2 : 1;
}

/* Of the codes of a block. */
INLINE size_t packed_code_bytes(const struct quant_form *f)
{
    return packed_is_bytes(f) ? 256 : 128;
}

/* Of the factors of a block of a super-block. */
INLINE size_t packed_factor_bytes(const struct quant_form *f)
{
    return (size_t)PACK_ROWS * packed_spans(f) * (f->min ? 2 : 1);
}

/* Of the f16 scales of a block, or of a super-block. */
INLINE size_t packed_f16_bytes(const struct quant_form *f)
{
    return (size_t)2 * PACK_ROWS * (f->min ? 2 : 1);
}

INLINE size_t packed_super_bytes(const struct quant_form *f)
{
    return SUPER_BLOCKS * packed_factor_bytes(f) + packed_f16_bytes(f);
}

/* From one block's scales, or super-block's, to the next one's. */
INLINE size_t packed_scale_stride(const struct quant_form *f)
{
    return f->super ? packed_super_bytes(f) : packed_f16_bytes(f);
}

/* Where in a group's scales block b has the 8 f16 of d, or of m. */
INLINE size_t packed_f16_at(const struct quant_form *f, size_t b, bool m)
{
    size_t at = m ? 2 * PACK_ROWS : 0;

    if (!f->super)
        return b * packed_f16_bytes(f) + at;
    return b / SUPER_BLOCKS * packed_super_bytes(f) + SUPER_BLOCKS * packed_factor_bytes(f) + at;
}

/* Where it has the 8 factors of a span, in types of super-blocks. */
INLINE size_t packed_factor_at(const struct quant_form *f, size_t b, uint32_t span, bool m)
{
    return b / SUPER_BLOCKS * packed_super_bytes(f) + b % SUPER_BLOCKS * packed_factor_bytes(f) +
           (span + (m ? packed_spans(f) : 0)) * PACK_ROWS;
}

/* Sum of a column's activations over a span; `at` is the column's and block's place in x. */
INLINE int32_t packed_sum(const struct quant_form *f, const struct quants *x, size_t at,
                          uint32_t span)
{
    if (!f->split)
        return x->sum[at];
    return span == 0 ? x->low_sum[at] : x->sum[at] - x->low_sum[at];
}

/* The same times their scale. */
INLINE float packed_d_sum(const struct quant_form *f, const struct quants *x, size_t at,
                          uint32_t span)
{
    return f->split ? x->d[at] * (float)packed_sum(f, x, at, span) : x->d_sum[at];
}

static inline uint32_t packed_groups(uint32_t n_rows)
{
    return (n_rows + PACK_ROWS - 1) / PACK_ROWS;
}

/* Of 8 rows of k elements, a multiple of the type's block. */
size_t packed_group_bytes(uint32_t type, uint32_t k);
/* Writes one group from n_rows <= PACK_ROWS rows, row_bytes apart, as the file has them. `out` is
 * zero before. */
void packed_fill(uint32_t type, const uint8_t *rows, size_t row_bytes, uint32_t n_rows, uint32_t k,
                 uint8_t *out);

/* A product's entry in a table by type. */
#define PACKED_ENTRY(name, type, block_bytes) [type] = name##_packed,

#endif
