/* The blocks of the quantized types, opened: unpack_<type> gives elements 32 part .. 32 part + 31
 * of a block as a struct quant_block; part is 0 unless the type has super-blocks. Inline, so that
 * each file that reads them gets them vectorized for its instruction set. Pure; any thread. */
#ifndef ENGINE_CPU_QUANT_UNPACK_H
#define ENGINE_CPU_QUANT_UNPACK_H

#include "engine/cpu/half.h"
#include "engine/cpu/quant_types.h"

#define HALF_SIGN 0x8000u /* sign of an f16 */

typedef void quant_unpack(const uint8_t *block, uint32_t part, struct quant_block *out);

/* 16 bytes: low nibbles are elements 0..15, high ones 16..31. */
INLINE void nibbles(const uint8_t *in, uint8_t code[32])
{
/* Kept as loops: unrolled, the compiler no longer sees vectors in them (measured: 4 times slower).
 */
#pragma GCC unroll 1
    for (int i = 0; i < 16; i++)
        code[i] = in[i] & 15;
#pragma GCC unroll 1
    for (int i = 0; i < 16; i++)
        code[i + 16] = in[i] >> 4;
}

/* 32 bytes of fields `bits` wide: element i is the field at `shift` of byte i. */
INLINE void fields(const uint8_t *in, uint32_t shift, uint8_t mask, uint8_t code[32])
{
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)(in[i] >> shift) & mask;
}

/* One more bit, worth `value`, of each element: bit `shift` of byte i. */
INLINE void add_bits(const uint8_t *in, uint32_t shift, uint8_t value, uint8_t code[32])
{
    for (int i = 0; i < 32; i++)
        code[i] |= (uint8_t)((in[i] >> shift & 1) * value);
}

/* One more bit, worth 16: bit i of a 32-bit number is element i's. */
INLINE void add_fifth_bits(const uint8_t *in, uint8_t code[32])
{
    uint32_t bits;

    memcpy(&bits, in, sizeof bits);
    for (uint32_t i = 0; i < 32; i++)
        code[i] |= (uint8_t)((bits >> i & 1) << 4);
}

INLINE void set_plain(struct quant_block *out, uint16_t d, uint16_t m)
{
    out->d = d;
    out->m = m;
    out->d_factor[0] = out->d_factor[1] = 1;
    out->m_factor[0] = out->m_factor[1] = 1;
}

/* f16 d, 16 bytes of nibbles. */
INLINE void unpack_q4_0(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    (void)part;
    set_plain(out, load_u16(b), 0);
    nibbles(b + 2, out->code);
}

/* f16 d, f16 m, 16 bytes of nibbles. */
INLINE void unpack_q4_1(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    (void)part;
    set_plain(out, load_u16(b), load_u16(b + 2));
    nibbles(b + 4, out->code);
}

/* f16 d, 32 fifth bits, 16 bytes of nibbles. */
INLINE void unpack_q5_0(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    (void)part;
    set_plain(out, load_u16(b), 0);
    nibbles(b + 6, out->code);
    add_fifth_bits(b + 2, out->code);
}

/* f16 d, f16 m, 32 fifth bits, 16 bytes of nibbles. */
INLINE void unpack_q5_1(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    (void)part;
    set_plain(out, load_u16(b), load_u16(b + 2));
    nibbles(b + 8, out->code);
    add_fifth_bits(b + 4, out->code);
}

/* f16 d, 32 bytes. */
INLINE void unpack_q8_0(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    (void)part;
    set_plain(out, load_u16(b), 0);
    memcpy(out->code, b + 2, sizeof out->code);
}

INLINE void unpack_iq4_nl(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    unpack_q4_0(b, part, out);
}

/* 16 bytes (low nibble: factor of d, high: of m), 64 bytes of 2-bit fields, f16 d, f16 m. */
INLINE void unpack_q2_k(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    out->d = load_u16(b + 80);
    out->m = (uint16_t)(load_u16(b + 82) ^ HALF_SIGN);
    for (uint32_t h = 0; h < 2; h++) {
        out->d_factor[h] = (int8_t)(b[2 * part + h] & 15);
        out->m_factor[h] = b[2 * part + h] >> 4;
    }
    fields(b + 16 + part / 4 * 32, part % 4 * 2, 3, out->code);
}

/* Factor j (0..15) of d in Q3_K's 12 bytes: 4 low bits in the first 8, 2 high ones in the last 4,
 * less 32. */
INLINE int8_t q3_k_factor(const uint8_t *s, uint32_t j)
{
    int low = s[j % 8] >> j / 8 * 4 & 15, high = s[8 + j % 4] >> j / 4 * 2 & 3;

    return (int8_t)((low | high << 4) - 32);
}

/* 32 bytes of third bits, 64 bytes of 2-bit fields, 12 of factors, f16 d. */
INLINE void unpack_q3_k(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    set_plain(out, load_u16(b + 108), 0);
    for (uint32_t h = 0; h < 2; h++)
        out->d_factor[h] = q3_k_factor(b + 96, 2 * part + h);
    fields(b + 32 + part / 4 * 32, part % 4 * 2, 3, out->code);
    add_bits(b, part, 4, out->code);
}

/* Factors of 6 bits for d and m of block j (0..7) in the 12 bytes of Q4_K and Q5_K: the first four
 * are whole, in bytes 0..3 and 4..7; those after have 4 low bits in bytes 8..11 and their 2 high
 * ones above the first four. */
INLINE void set_six_bit_factors(const uint8_t *s, uint32_t j, struct quant_block *out)
{
    int d = s[j % 4], m = s[4 + j % 4];

    if (j < 4) {
        d &= 63;
        m &= 63;
    } else {
        d = (s[4 + j] & 15) | (d >> 2 & 48);
        m = s[4 + j] >> 4 | (m >> 2 & 48);
    }
    out->d_factor[0] = out->d_factor[1] = (int8_t)d;
    out->m_factor[0] = out->m_factor[1] = (uint8_t)m;
}

/* f16 d, f16 m, 12 bytes of factors, 128 bytes of nibbles: low ones of 32 are an even block's, high
 * ones the next's. */
INLINE void unpack_q4_k(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    out->d = load_u16(b);
    out->m = (uint16_t)(load_u16(b + 2) ^ HALF_SIGN);
    set_six_bit_factors(b + 4, part, out);
    fields(b + 16 + part / 2 * 32, part % 2 * 4, 15, out->code);
}

/* As Q4_K, with 32 bytes of fifth bits before the nibbles. */
INLINE void unpack_q5_k(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    out->d = load_u16(b);
    out->m = (uint16_t)(load_u16(b + 2) ^ HALF_SIGN);
    set_six_bit_factors(b + 4, part, out);
    fields(b + 48 + part / 2 * 32, part % 2 * 4, 15, out->code);
    add_bits(b + 16, part, 16, out->code);
}

/* 128 bytes of low nibbles, 64 of 2-bit fields above them, 16 signed factors, f16 d. Of a half of
 * the super-block, the 64 bytes' low nibbles are its first 64 elements, the high ones the rest. */
INLINE void unpack_q6_k(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    uint32_t half = part / 4, quarter = part % 4;

    set_plain(out, load_u16(b + 208), 0);
    out->d_factor[0] = (int8_t)b[192 + 2 * part];
    out->d_factor[1] = (int8_t)b[192 + 2 * part + 1];
    fields(b + 64 * half + quarter % 2 * 32, quarter / 2 * 4, 15, out->code);
    add_bits(b + 128 + 32 * half, 2 * quarter, 16, out->code);
    add_bits(b + 128 + 32 * half, 2 * quarter + 1, 32, out->code);
}

/* f16 d, 8 x 2 high bits and 8 x 4 low bits of factors (less 32), 128 bytes of nibbles. */
INLINE void unpack_iq4_xs(const uint8_t *b, uint32_t part, struct quant_block *out)
{
    int low = b[4 + part / 2] >> part % 2 * 4 & 15, high = load_u16(b + 2) >> 2 * part & 3;

    set_plain(out, load_u16(b), 0);
    out->d_factor[0] = out->d_factor[1] = (int8_t)((low | high << 4) - 32);
    nibbles(b + 8 + 16 * part, out->code);
}

#endif
