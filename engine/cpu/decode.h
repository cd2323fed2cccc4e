/* Decoding rows of quantized types to float, as one inline function for the scalar table and the
 * AVX2 one: the compiler vectorizes it for the instruction set of the file that includes it, and no
 * product is fused with a sum, so both give the same bits. Pure; any thread. */
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

INLINE void decode_half(const struct quant_form *f, const struct quant_block *b, int half,
                        float *out)
{
    float d = f16_to_f32(b->d) * (float)b->d_factor[half];
    float m = f16_to_f32(b->m) * (float)b->m_factor[half];

    for (int i = 0; i < 16; i++) {
        float v = d * (float)decode_level(f, b->code[16 * half + i]);

        out[i] = f->min ? v + m : v;
    }
}

INLINE void decode_quants(const struct quant_form *f, quant_unpack *unpack, uint32_t block_bytes,
                          const void *in, float *out, size_t n)
{
    uint32_t parts = f->super ? SUPER_BLOCKS : 1;
    const uint8_t *p = in;

    for (size_t i = 0; i < n / QUANT_BLOCK; i += parts, p += block_bytes)
        for (uint32_t part = 0; part < parts; part++, out += QUANT_BLOCK) {
            struct quant_block b;

            unpack(p, part, &b);
            decode_half(f, &b, 0, out);
            decode_half(f, &b, 1, out + 16);
        }
}

/* One decoder, q4_0_row and so on, and its entry in a table by type. */
#define DECODE_ROW(name, type, block_bytes)                                                        \
    static void name##_row(const void *in, float *out, size_t n)                                   \
    {                                                                                              \
        decode_quants(&quant_forms[type], unpack_##name, block_bytes, in, out, n);                 \
    }
#define DECODE_ENTRY(name, type, block_bytes) [type] = name##_row,

#endif
