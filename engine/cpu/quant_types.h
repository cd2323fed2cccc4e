/* What the quantized tensor types have in common, so that one decoder, one packer and one product
 * serve them all. 32 elements are codes; a code stands for a level, a small integer. A scale d for
 * all 32, or for each 16 of them, and in some types a minimum m, make it the value d * level + m.
 * d and m are an f16, in types of super-blocks (256 elements) times a factor of a few bits. The
 * layouts are those of GGUF's description of its quantization types. Pure; any thread. */
#ifndef ENGINE_CPU_QUANT_TYPES_H
#define ENGINE_CPU_QUANT_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/model/gguf.h"

/* What takes a form must be inlined: it costs nothing only where the form is a constant. */
#define INLINE static inline __attribute__((always_inline))

#define SUPER_BLOCKS 8 /* blocks of 32 in a super-block */

enum quant_level {
    LEVEL_OFFSET, /* code - offset */
    LEVEL_SIGNED, /* the code is a signed byte */
    LEVEL_TABLE,  /* quant_levels[code] */
};

struct quant_form {
    uint8_t max_code; /* 0: not a quantized type */
    enum quant_level level;
    uint8_t offset;
    bool split; /* a scale for each 16 elements, else for 32 */
    bool min;   /* has m */
    bool super; /* super-blocks of 256, else blocks of 32 */
};

static const struct quant_form quant_forms[TENSOR_TYPES] = {
    [TENSOR_Q4_0] = {.max_code = 15, .offset = 8},
    [TENSOR_Q4_1] = {.max_code = 15, .min = true},
    [TENSOR_Q5_0] = {.max_code = 31, .offset = 16},
    [TENSOR_Q5_1] = {.max_code = 31, .min = true},
    [TENSOR_Q8_0] = {.max_code = 255, .level = LEVEL_SIGNED},
    [TENSOR_Q2_K] = {.max_code = 3, .split = true, .min = true, .super = true},
    [TENSOR_Q3_K] = {.max_code = 7, .offset = 4, .split = true, .super = true},
    [TENSOR_Q4_K] = {.max_code = 15, .min = true, .super = true},
    [TENSOR_Q5_K] = {.max_code = 31, .min = true, .super = true},
    [TENSOR_Q6_K] = {.max_code = 63, .offset = 32, .split = true, .super = true},
    [TENSOR_IQ4_NL] = {.max_code = 15, .level = LEVEL_TABLE},
    [TENSOR_IQ4_XS] = {.max_code = 15, .level = LEVEL_TABLE, .super = true},
};

static inline bool quant_is(uint32_t type)
{
    return type < TENSOR_TYPES && quant_forms[type].max_code != 0;
}

/* Levels of IQ4_NL and IQ4_XS. */
static const int8_t quant_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

/* 32 elements as the file has them. A span is what one scale covers: elements 0..15 and 16..31
 * where the type is split, else all. */
struct quant_block {
    uint8_t code[32];
    uint16_t d, m;      /* f16; m is the file's negated where the type subtracts it, 0 where it
                           has none */
    int8_t d_factor[2]; /* of elements 0..15 and 16..31; 1 outside super-blocks */
    uint8_t m_factor[2];
};

/* X(name, type, bytes of a block in the file) for each. */
#define EACH_QUANT_TYPE(X)                                                                         \
    X(q4_0, TENSOR_Q4_0, 18)                                                                       \
    X(q4_1, TENSOR_Q4_1, 20)                                                                       \
    X(q5_0, TENSOR_Q5_0, 22)                                                                       \
    X(q5_1, TENSOR_Q5_1, 24)                                                                       \
    X(q8_0, TENSOR_Q8_0, 34)                                                                       \
    X(q2_k, TENSOR_Q2_K, 84)                                                                       \
    X(q3_k, TENSOR_Q3_K, 110)                                                                      \
    X(q4_k, TENSOR_Q4_K, 144)                                                                      \
    X(q5_k, TENSOR_Q5_K, 176)                                                                      \
    X(q6_k, TENSOR_Q6_K, 210)                                                                      \
    X(iq4_nl, TENSOR_IQ4_NL, 18)                                                                   \
    X(iq4_xs, TENSOR_IQ4_XS, 136)

#endif
