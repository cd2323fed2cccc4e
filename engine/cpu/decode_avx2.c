#include "engine/cpu/decode.h"
#include "engine/cpu/avx2.h"

#include <immintrin.h>

#define LANES 8

static void f32_row(const void *in, float *out, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}

static void f16_row(const void *in, float *out, size_t n)
{
    const uint16_t *p = in;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + i))));
    for (; i < n; i++)
        out[i] = f16_to_f32(p[i]);
}

static void bf16_row(const void *in, float *out, size_t n)
{
    const uint16_t *p = in;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + i)));

        _mm256_storeu_si256((void *)(out + i), _mm256_slli_epi32(v, 16));
    }
    for (; i < n; i++)
        out[i] = bf16_to_f32(p[i]);
}

INLINE __m256 levels8(const struct quant_form *f, const uint8_t *code)
{
    __m128i v = _mm_loadl_epi64((const void *)code);
    __m256i level;

    if (f->level == LEVEL_TABLE)
        v = _mm_shuffle_epi8(_mm_loadu_si128((const void *)quant_levels), v);
    if (f->level != LEVEL_OFFSET)
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
    level = _mm256_sub_epi32(_mm256_cvtepu8_epi32(v), _mm256_set1_epi32(f->offset));
    return _mm256_cvtepi32_ps(level);
}

INLINE void block_to_float(const struct quant_form *f, const struct quant_block *b, float *out)
{
    for (int i = 0; i < QUANT_BLOCK; i += LANES) {
        int half = i / 16;
        float d = _cvtsh_ss(b->d) * (float)b->d_factor[half];
        __m256 v = _mm256_mul_ps(_mm256_set1_ps(d), levels8(f, b->code + i));

        if (f->min)
            v = _mm256_add_ps(v, _mm256_set1_ps(_cvtsh_ss(b->m) * (float)b->m_factor[half]));
        _mm256_storeu_ps(out + i, v);
    }
}

EACH_QUANT_TYPE(DECODE_ROW)

decode_row *const avx2_decode[TENSOR_TYPES] = {[TENSOR_F32] = f32_row,
                                               [TENSOR_F16] = f16_row,
                                               [TENSOR_BF16] = bf16_row,
                                               EACH_QUANT_TYPE(DECODE_ENTRY)};
