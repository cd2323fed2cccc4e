#include "engine/cpu/decode.h"
#include "engine/cpu/packed.h"
#include "engine/cpu/scalar.h"

INLINE uint8_t code_at(const struct quant_form *f, const uint8_t *block, size_t r, size_t i)
{
    uint8_t pair;

    if (packed_is_bytes(f))
        return block[i / 4 * 32 + r * 4 + i % 4];
    pair = block[i % 16 / 4 * 32 + r * 4 + i % 4];
    return i < 16 ? pair & 15 : pair >> 4;
}

/* d, or m, of a span of row r's block b. */
INLINE float scale_at(const struct quant_form *f, const uint8_t *scales, size_t b, uint32_t span,
                      bool m, size_t r)
{
    float half = f16_to_f32(load_u16(scales + packed_f16_at(f, b, m) + 2 * r));

    if (!f->super)
        return half;
    return half * (float)(int8_t)scales[packed_factor_at(f, b, span, m) + r];
}

INLINE float row_dot(const struct quant_form *f, const struct packed *w, const uint8_t *group,
                     size_t r, const struct quants *x, size_t col)
{
    const uint8_t *scales = group + w->n_blocks * packed_code_bytes(f);
    uint32_t length = QUANT_BLOCK / packed_spans(f);
    float acc = 0;

    for (size_t b = 0; b < w->n_blocks; b++, group += packed_code_bytes(f))
        for (uint32_t span = 0; span < packed_spans(f); span++) {
            const int8_t *q = x->q + col * x->ldq + b * QUANT_BLOCK;
            size_t at = col * x->ldb + b;
            int32_t sum = 0;

            for (size_t i = span * length; i < (span + 1) * length; i++)
                sum += decode_level(f, code_at(f, group, r, i)) * q[i];
            acc += scale_at(f, scales, b, span, false, r) * x->d[at] * (float)sum;
            if (f->min)
                acc += scale_at(f, scales, b, span, true, r) * packed_d_sum(f, x, at, span);
        }
    return acc;
}

INLINE void matmul(const struct quant_form *f, const struct packed *w, uint32_t first,
                   uint32_t last, const struct quants *x, uint32_t n_cols,
                   const struct outputs *out)
{
    for (size_t g = first; g < last; g++)
        for (size_t c = 0; c < n_cols; c++)
            for (size_t r = 0; r < PACK_ROWS; r++) {
                float *y = out->y + c * out->ld + g * PACK_ROWS + r;
                float v = row_dot(f, w, w->data + g * w->group_bytes, r, x, c);

                *y = out->add ? *y + v : v;
            }
}

#define PACKED_MATMUL(name, type, block_bytes)                                                     \
    static void name##_packed(const struct packed *w, uint32_t first, uint32_t last,               \
                              const struct quants *x, uint32_t n_cols, const struct outputs *out)  \
    {                                                                                              \
        matmul(&quant_forms[type], w, first, last, x, n_cols, out);                                \
    }
EACH_QUANT_TYPE(PACKED_MATMUL)

packed_matmul *const scalar_packed[TENSOR_TYPES] = {EACH_QUANT_TYPE(PACKED_ENTRY)};
