#include "engine/cpu/packed.h"

#include <string.h>

#include "engine/cpu/quant_unpack.h"

size_t packed_group_bytes(uint32_t type, uint32_t k)
{
    const struct quant_form *f = &quant_forms[type];
    size_t n_blocks = k / QUANT_BLOCK, n_scales = f->super ? n_blocks / SUPER_BLOCKS : n_blocks;

    return n_blocks * packed_code_bytes(f) + n_scales * packed_scale_stride(f);
}

/* Row r's codes into a block's vectors, 4 at a time. */
static void put_codes(const struct quant_form *f, const struct quant_block *in, uint32_t r,
                      uint8_t *out)
{
    uint8_t pairs[16];

    if (packed_is_bytes(f)) {
        for (uint32_t j = 0; j < 8; j++)
            memcpy(out + 32 * j + 4 * r, in->code + 4 * j, 4);
        return;
    }
    for (uint32_t i = 0; i < 16; i++)
        pairs[i] = (uint8_t)(in->code[i] | in->code[i + 16] << 4);
    for (uint32_t j = 0; j < 4; j++)
        memcpy(out + 32 * j + 4 * r, pairs + 4 * j, 4);
}

static void put_f16(const struct quant_form *f, uint8_t *scales, uint32_t b, bool m, uint32_t r,
                    uint16_t half)
{
    memcpy(scales + packed_f16_at(f, b, m) + 2 * r, &half, sizeof half);
}

static void put_scales(const struct quant_form *f, const struct quant_block *in, uint32_t b,
                       uint32_t r, uint8_t *scales)
{
    put_f16(f, scales, b, false, r, in->d);
    if (f->min)
        put_f16(f, scales, b, true, r, in->m);
    for (uint32_t span = 0; f->super && span < packed_spans(f); span++) {
        scales[packed_factor_at(f, b, span, false) + r] = (uint8_t)in->d_factor[span];
        if (f->min)
            scales[packed_factor_at(f, b, span, true) + r] = in->m_factor[span];
    }
}

#define UNPACK_ENTRY(name, type, block_bytes) [type] = unpack_##name,
static quant_unpack *const unpackers[TENSOR_TYPES] = {EACH_QUANT_TYPE(UNPACK_ENTRY)};

void packed_fill(uint32_t type, const uint8_t *rows, size_t row_bytes, uint32_t n_rows, uint32_t k,
                 uint8_t *out)
{
    const struct quant_form *f = &quant_forms[type];
    uint32_t n_blocks = k / QUANT_BLOCK, parts = f->super ? SUPER_BLOCKS : 1;
    size_t block_bytes = row_bytes / (n_blocks / parts);

    for (uint32_t r = 0; r < n_rows; r++, rows += row_bytes)
        for (uint32_t b = 0; b < n_blocks; b++) {
            struct quant_block block;

            unpackers[type](rows + b / parts * block_bytes, b % parts, &block);
            put_codes(f, &block, r, out + b * packed_code_bytes(f));
            put_scales(f, &block, b, r, out + n_blocks * packed_code_bytes(f));
        }
}
