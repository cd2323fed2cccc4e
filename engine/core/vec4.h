/* Four lanes of the baseline instruction set: the same result on every machine. */
#ifndef ENGINE_CORE_VEC4_H
#define ENGINE_CORE_VEC4_H

#include <stdint.h>

typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

static inline v4f vec4_splat(float f)
{
    return (v4f){f, f, f, f};
}

/* e^x for x <= 0; 0 below -87 (-infinity included). x = n ln 2 + r, and a polynomial of degree 6.
 * Relative error below 3e-7. */
static inline v4f vec4_exp_negative(v4f x)
{
    const v4f magic = vec4_splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    v4i in_range = x > vec4_splat(-87.0f);
    v4f safe = (v4f)((v4i)x & in_range);
    v4f shifted = safe * vec4_splat(1.44269504f) + magic, n = shifted - magic;
    v4f r = safe - n * vec4_splat(0.693359375f) - n * vec4_splat(-2.12194440e-4f);
    v4i exponent = ((v4i)shifted - (v4i)magic + 127) << 23;
    v4f p = vec4_splat(1.0f / 720);

    p = p * r + vec4_splat(1.0f / 120);
    p = p * r + vec4_splat(1.0f / 24);
    p = p * r + vec4_splat(1.0f / 6);
    p = p * r + vec4_splat(0.5f);
    p = p * r + vec4_splat(1.0f);
    p = p * r + vec4_splat(1.0f);
    return (v4f)((v4i)(p * (v4f)exponent) & in_range);
}

#endif
