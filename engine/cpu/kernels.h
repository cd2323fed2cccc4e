/* The arithmetic of the CPU device, as a table per instruction set. All variants of a kernel take
 * the same layouts; a variant is chosen once, at open.
 *
 * What every variant promises: an output element is summed in an order that depends on k only,
 * never on how many columns or rows one call covers, and a lane computes the same whatever its
 * place in the vector. So one instruction set always gives the same bits; two may differ in the
 * last.
 *
 * "Column" is a token's activation, "row" an output feature. Activation buffers have a row stride
 * that is a multiple of ACT_ALIGN floats, zero past the last element. Pure; any thread. */
#ifndef ENGINE_CPU_KERNELS_H
#define ENGINE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model/gguf.h"

#define QUANT_BLOCK 32 /* elements per scale, of weights and of activations */
#define ACT_ALIGN   32
#define PACK_ROWS   8 /* output rows interleaved in one packed group */
#define KV_TOKENS   16
#define GELU_SCALE  0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_CUBIC  0.044715f
#define DOT_ROWS    4 /* weight rows that dot_rows takes at a time */
#define QK_QUERIES  4 /* queries that one call of qk_page or pv_page takes */

/* tile(first, second, n_queries, the rest), for functions that are always inlined: with a number
 * that the compiler knows it unrolls their loops over the queries. */
#define BY_QUERIES(n_queries, tile, first, second, ...)                                            \
    do {                                                                                           \
        if ((n_queries) == 4)                                                                      \
            tile(first, second, 4, __VA_ARGS__);                                                   \
        else if ((n_queries) == 3)                                                                 \
            tile(first, second, 3, __VA_ARGS__);                                                   \
        else if ((n_queries) == 2)                                                                 \
            tile(first, second, 2, __VA_ARGS__);                                                   \
        else if ((n_queries) == 1)                                                                 \
            tile(first, second, 1, __VA_ARGS__);                                                   \
    } while (0)

/* Activations quantized per block of QUANT_BLOCK: x ~ d * q. */
struct quants {
    int8_t *q;        /* (n_cols, k) */
    float *d;         /* (n_cols, k / 32) */
    float *d_sum;     /* (n_cols, k / 32): d * sum of the block's q */
    int32_t *sum;     /* (n_cols, k / 32): sum of the block's q */
    int32_t *low_sum; /* (n_cols, k / 32): of its first 16 */
    size_t ldq, ldb;  /* strides, in elements */
};

/* Weights of a quantized type, PACK_ROWS rows interleaved; packed.h has the layout. */
struct packed {
    const uint8_t *data;
    size_t group_bytes;
    uint32_t n_blocks; /* k / 32 */
};

/* Outputs of a matrix product: (n_cols, ld), float. */
struct outputs {
    float *y;
    size_t ld;
    bool add; /* y += W x (the residual stream), else y = W x */
};

/* y = W x for the groups [first, last) of packed weights; writes whole groups of 8 rows, so
 * outputs need a stride padded to that. */
typedef void packed_matmul(const struct packed *w, uint32_t first, uint32_t last,
                           const struct quants *x, uint32_t n_cols, const struct outputs *out);

/* K of one page, layer and head: (head_dim, KV_TOKENS); V: (KV_TOKENS, head_pad); before each,
 * where the type has them, KV_TOKENS scales. */
struct kv_kernels {
    size_t element_bytes;
    size_t scale_bytes; /* of a token's scale; 0: none */
    /* Writes token `t` (0..15) of a page. k, v: (head_dim). */
    void (*store)(void *k_page, void *v_page, uint32_t t, const float *k, const float *v,
                  uint32_t head_dim, uint32_t head_pad);
    /* scores[i][0..15] = q[i] . k for n_queries <= QK_QUERIES. Tokens never written give garbage
     * in their own places only. */
    void (*qk_page)(const float *const *q, float *const *scores, uint32_t n_queries,
                    const void *k_page, uint32_t head_dim);
    /* acc[i][0..head_pad) += sum over t < n_tokens of p[i][t] * v[t], in ascending t, for
     * n_queries <= QK_QUERIES. */
    void (*pv_page)(const float *const *p, float *const *acc, uint32_t n_queries, uint32_t n_tokens,
                    const void *v_page, uint32_t head_pad);
};

/* n elements (a multiple of the type's block) of a weight row to float, the same bits in every
 * variant: those of the format's definition in float32. */
typedef void decode_row(const void *in, float *out, size_t n);

struct kernels {
    const char *name;
    decode_row *const *decode;    /* by enum tensor_type */
    packed_matmul *const *packed; /* by enum tensor_type; NULL: not quantized, never packed */
    /* y[c][r] (+)= w[r] . x[c] for n_rows <= DOT_ROWS rows of floats; k_pad a multiple of
     * ACT_ALIGN, both sides zero in the padding. */
    void (*dot_rows)(const float *w, size_t ldw, uint32_t n_rows, const float *x, size_t ldx,
                     uint32_t n_cols, size_t k_pad, const struct outputs *out);
    /* Column `col` of q from x, k elements (a multiple of 32). A NaN or infinity in a block makes
     * the block's d one, so that it reaches the logits. */
    void (*quantize)(const float *x, size_t k, struct quants *q, uint32_t col);
    /* out = x / rms(x) * weight */
    void (*rmsnorm)(const float *x, const float *weight, uint32_t n, float eps, float *out);
    /* Rotates pairs (2i, 2i+1) of the first rope_dims elements of n_heads heads in place. cos and
     * sin: (rope_dims), each pair's value twice, sin negated in the even place. */
    void (*rope)(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos, const float *sin,
                 uint32_t rope_dims);
    /* The same for pairs (i, i + rope_dims / 2). cos and sin: (rope_dims / 2). */
    void (*rope_halves)(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos,
                        const float *sin, uint32_t rope_dims);
    /* gate = silu(gate) * up */
    void (*silu_mul)(float *gate, const float *up, uint32_t n);
    /* gate = gelu(gate) * up, by the tanh approximation */
    void (*gelu_mul)(float *gate, const float *up, uint32_t n);
    /* x = cap * tanh(x / cap) */
    void (*soft_cap)(float *x, uint32_t n, float cap);
    /* p = exp(p - max) over n scores (room for n rounded up to 8; the rest becomes 0); *max and
     * *sum out. */
    void (*softmax)(float *p, uint32_t n, float *max, float *sum);
    /* acc = acc * a + other * b */
    void (*scale_add)(float *acc, float a, const float *other, float b, uint32_t n);
    struct kv_kernels kv_f16;
    struct kv_kernels kv_f32;
    struct kv_kernels kv_q8; /* kv_q8.h */
};

extern const struct kernels kernels_scalar;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;

/* The table of "scalar", "avx2", "avx512"; "auto" (or NULL): the best this machine has. NULL when
 * the machine lacks it or the name is unknown. */
const struct kernels *kernels_for(const char *isa);

#endif
