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

EACH_QUANT_TYPE(DECODE_ROW)

decode_row *const avx2_decode[TENSOR_TYPES] = {[TENSOR_F32] = f32_row,
                                               [TENSOR_F16] = f16_row,
                                               [TENSOR_BF16] = bf16_row,
                                               EACH_QUANT_TYPE(DECODE_ENTRY)};
