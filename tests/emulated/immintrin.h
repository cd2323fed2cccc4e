/* Stands before the compiler's <immintrin.h> when the AVX-512 kernels are built for a machine
 * without AVX-512: SIMDe (Debian's libsimde-dev) computes each intrinsic in plain C. Slow, and the
 * same results. */
#ifndef TESTS_EMULATED_IMMINTRIN_H
#define TESTS_EMULATED_IMMINTRIN_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#define SIMDE_NO_NATIVE
#define SIMDE_NO_INLINE /* the kernels' unrolled tiles take the compiler minutes otherwise */
#include <simde/x86/avx512.h>
#include <simde/x86/avx2.h>
#include <simde/x86/fma.h>
#include <simde/x86/f16c.h>

/* Constants that SIMDe defines by names of its own. */
#undef _MM_FROUND_NO_EXC
#define _MM_FROUND_NO_EXC 8
#undef _MM_FROUND_TO_NEAREST_INT
#define _MM_FROUND_TO_NEAREST_INT 0
#undef _MM_HINT_T0
#define _MM_HINT_T0 3

/* What Debian 12's SIMDe lacks, by Intel's description of each. */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint16_t emulated_mask16;

static inline __m512 emulated_load(const float *p)
{
    __m512 v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline void emulated_store(float *p, __m512 v)
{
    memcpy(p, &v, sizeof v);
}

static inline __m512 emulated_mm512_mask_loadu_ps(__m512 other, emulated_mask16 m, const void *p)
{
    float out[16];

    emulated_store(out, other);
    for (int i = 0; i < 16; i++)
        if ((m >> i & 1) != 0)
            memcpy(&out[i], (const char *)p + 4 * i, 4);
    return emulated_load(out);
}

static inline __m512 emulated_mm512_maskz_loadu_ps(emulated_mask16 m, const void *p)
{
    return emulated_mm512_mask_loadu_ps(_mm512_setzero_ps(), m, p);
}

static inline void emulated_mm512_mask_storeu_ps(void *p, emulated_mask16 m, __m512 v)
{
    float in[16];

    emulated_store(in, v);
    for (int i = 0; i < 16; i++)
        if ((m >> i & 1) != 0)
            memcpy((char *)p + 4 * i, &in[i], 4);
}

static inline __m256i emulated_mm256_maskz_loadu_epi16(emulated_mask16 m, const void *p)
{
    uint16_t out[16] = {0};
    __m256i r;

    for (int i = 0; i < 16; i++)
        if ((m >> i & 1) != 0)
            memcpy(&out[i], (const char *)p + 2 * i, 2);
    memcpy(&r, out, sizeof r);
    return r;
}

static inline __m512 emulated_mm512_cvtph_ps(__m256i h)
{
    float out[16];

    for (int i = 0; i < 2; i++) {
        __m128i half;
        __m256 f;

        memcpy(&half, (const char *)&h + 16 * i, 16);
        f = _mm256_cvtph_ps(half);
        memcpy(out + 8 * i, &f, 32);
    }
    return emulated_load(out);
}

static inline __m512 emulated_mm512_cvtepi32_ps(__m512i v)
{
    int32_t in[16];
    float out[16];

    memcpy(in, &v, sizeof in);
    for (int i = 0; i < 16; i++)
        out[i] = (float)in[i];
    return emulated_load(out);
}

static inline __m512i emulated_mm512_cvtepi8_epi32(__m128i v)
{
    int8_t in[16];
    int32_t out[16];
    __m512i r;

    memcpy(in, &v, sizeof in);
    for (int i = 0; i < 16; i++)
        out[i] = in[i];
    memcpy(&r, out, sizeof r);
    return r;
}

/* Rounds to nearest even, the default mode. */
static inline __m512i emulated_mm512_cvtps_epi32(__m512 v)
{
    float in[16];
    int32_t out[16];
    __m512i r;

    emulated_store(in, v);
    for (int i = 0; i < 16; i++)
        out[i] = (int32_t)nearbyintf(in[i]);
    memcpy(&r, out, sizeof r);
    return r;
}

static inline __m256 emulated_mm512_extractf32x8_ps(__m512 v, int half)
{
    __m256 r;

    memcpy(&r, (const char *)&v + 32 * half, sizeof r);
    return r;
}

/* Halves are combined until one is left, as compilers expand it. */
static inline float emulated_mm512_reduce_add_ps(__m512 v)
{
    float x[16];

    emulated_store(x, v);
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            x[i] += x[i + n];
    return x[0];
}

static inline float emulated_mm512_reduce_max_ps(__m512 v)
{
    float x[16];

    emulated_store(x, v);
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            x[i] = x[i] > x[i + n] ? x[i] : x[i + n];
    return x[0];
}

/* SIMDe of Debian 13 has some of them: ours are taken on both. */
#undef __mmask16
#define __mmask16 emulated_mask16
#undef _mm512_mask_loadu_ps
#define _mm512_mask_loadu_ps emulated_mm512_mask_loadu_ps
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps emulated_mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps emulated_mm512_mask_storeu_ps
#undef _mm256_maskz_loadu_epi16
#define _mm256_maskz_loadu_epi16 emulated_mm256_maskz_loadu_epi16
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps emulated_mm512_cvtph_ps
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32 emulated_mm512_cvtepi8_epi32
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps emulated_mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32 emulated_mm512_cvtps_epi32
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps emulated_mm512_extractf32x8_ps
#undef _mm512_reduce_add_ps
#define _mm512_reduce_add_ps emulated_mm512_reduce_add_ps
#undef _mm512_reduce_max_ps
#define _mm512_reduce_max_ps emulated_mm512_reduce_max_ps

#endif
