/* 16-bit floats in plain C, for the scalar kernels and the edges of the vector ones. f16 is IEEE
 * binary16; conversion to it rounds to nearest even, as the hardware does. Pure. */
#ifndef ENGINE_CPU_HALF_H
#define ENGINE_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t bits)
{
    float f;

    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t bits_of_float(float f)
{
    uint32_t bits;

    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;

    if (exponent == 31) /* infinity, NaN */
        return float_of_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent != 0)
        return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    /* Zero and subnormals: fraction * 2^-24, which a float holds exactly. */
    return sign != 0 ? -((float)fraction * 0x1p-24f) : (float)fraction * 0x1p-24f;
}

static inline uint16_t f32_to_f16(float f)
{
    uint32_t bits = bits_of_float(f), magnitude = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;

    if (magnitude > 0x7f800000) /* NaN stays one */
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
    if (magnitude >= 0x477ff000) /* rounds past 65504 */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) /* normal: the bias moves by 112, 13 bits round away */
        return (uint16_t)(sign | ((magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13));
    /* Subnormal: adding 0.5 leaves the fraction in units of 2^-24, rounded by the adder. */
    return (uint16_t)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000));
}

static inline float bf16_to_f32(uint16_t h)
{
    return float_of_bits((uint32_t)h << 16);
}

static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

#endif
