#include "engine/cpu/avx2.h"

#include <immintrin.h>
#include <math.h>

#define LANES 8

void avx2_rope(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos, const float *sin,
               uint32_t rope_dims)
{
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
        uint32_t i = 0;

        for (; i + LANES <= rope_dims; i += LANES) {
            __m256 v = _mm256_loadu_ps(x + i), swapped = _mm256_permute_ps(v, 0xb1);

            _mm256_storeu_ps(x + i,
                             _mm256_fmadd_ps(v, _mm256_loadu_ps(cos + i),
                                             _mm256_mul_ps(swapped, _mm256_loadu_ps(sin + i))));
        }
        for (; i < rope_dims; i += 2) {
            float a = x[i], b = x[i + 1];

            x[i] = fmaf(a, cos[i], b * sin[i]);
            x[i + 1] = fmaf(b, cos[i + 1], a * sin[i + 1]);
        }
    }
}

void avx2_rope_halves(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos,
                      const float *sin, uint32_t rope_dims)
{
    uint32_t half = rope_dims / 2;

    for (uint32_t h = 0; h < n_heads; h++, x += head_dim) {
        uint32_t i = 0;

        for (; i + LANES <= half; i += LANES) {
            __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
            __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);

            _mm256_storeu_ps(x + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
            _mm256_storeu_ps(x + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
        }
        for (; i < half; i++) {
            float a = x[i], b = x[i + half];

            x[i] = fmaf(a, cos[i], -(b * sin[i]));
            x[i + half] = fmaf(b, cos[i], a * sin[i]);
        }
    }
}
