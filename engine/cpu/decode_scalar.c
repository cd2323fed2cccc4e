#include "engine/cpu/decode.h"
#include "engine/cpu/scalar.h"

static void f32_row(const void *in, float *out, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}

static void f16_row(const void *in, float *out, size_t n)
{
    const uint8_t *p = in;

    for (size_t i = 0; i < n; i++)
        out[i] = f16_to_f32(load_u16(p + 2 * i));
}

static void bf16_row(const void *in, float *out, size_t n)
{
    const uint8_t *p = in;

    for (size_t i = 0; i < n; i++)
        out[i] = bf16_to_f32(load_u16(p + 2 * i));
}

INLINE void block_to_float(const struct quant_form *f, const struct quant_block *b, float *out)
{
    float d = f16_to_f32(b->d), m = f16_to_f32(b->m);

    for (int i = 0; i < QUANT_BLOCK; i++) {
        int half = i / 16;
        float v = d * (float)b->d_factor[half] * (float)decode_level(f, b->code[i]);

        out[i] = f->min ? v + m * (float)b->m_factor[half] : v;
    }
}

EACH_QUANT_TYPE(DECODE_ROW)

decode_row *const scalar_decode[TENSOR_TYPES] = {[TENSOR_F32] = f32_row,
                                                 [TENSOR_F16] = f16_row,
                                                 [TENSOR_BF16] = bf16_row,
                                                 EACH_QUANT_TYPE(DECODE_ENTRY)};
