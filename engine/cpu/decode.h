/* What the decoders of quantized rows to float share between instruction sets. No product is fused
 * with a sum, so all give the same bits. Pure; any thread. */
#ifndef ENGINE_CPU_DECODE_H
#define ENGINE_CPU_DECODE_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/quant_unpack.h"

INLINE int decode_level(const struct quant_form *f, uint8_t code)
{
    if (f->level == LEVEL_SIGNED)
        return (int8_t)code;
    return f->level == LEVEL_TABLE ? quant_levels[code] : code - f->offset;
}

/* 32 elements: level times scale, plus m. */
typedef void decode_block(const struct quant_form *f, const struct quant_block *b, float *out);

INLINE void decode_quants(const struct quant_form *f, quant_unpack *unpack, decode_block *decode,
                          uint32_t block_bytes, const void *in, float *out, size_t n)
{
    uint32_t parts = f->super ? SUPER_BLOCKS : 1;
    const uint8_t *p = in;

    for (size_t i = 0; i < n / QUANT_BLOCK; i += parts, p += block_bytes)
        for (uint32_t part = 0; part < parts; part++, out += QUANT_BLOCK) {
            struct quant_block b;

            unpack(p, part, &b);
            decode(f, &b, out);
        }
}

/* One decoder, q4_0_row and so on, from the including file's block_to_float; its entry in a table
 * by type. */
#define DECODE_ROW(name, type, block_bytes)                                                        \
    static void name##_row(const void *in, float *out, size_t n)                                   \
    {                                                                                              \
        decode_quants(&quant_forms[type], unpack_##name, block_to_float, block_bytes, in, out, n); \
    }
#define DECODE_ENTRY(name, type, block_bytes) [type] = name##_row,

#endif
