/* Functions of the AVX2 table, for its own files and for the AVX-512 table, which takes over those
 * where wider vectors would gain nothing. The contracts are in kernels.h. */
#ifndef ENGINE_CPU_AVX2_H
#define ENGINE_CPU_AVX2_H

#include "engine/cpu/kernels.h"

extern decode_row *const avx2_decode[TENSOR_TYPES];
extern packed_matmul *const avx2_packed[TENSOR_TYPES];
void avx2_dot_rows(const float *w, size_t ldw, uint32_t n_rows, const float *x, size_t ldx,
                   uint32_t n_cols, size_t k_pad, const struct outputs *out);
void avx2_quantize(const float *x, size_t k, struct quants *q, uint32_t col);
void avx2_rmsnorm(const float *x, const float *weight, uint32_t n, float eps, float *out);
void avx2_rope(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos, const float *sin,
               uint32_t rope_dims);
void avx2_rope_halves(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos,
                      const float *sin, uint32_t rope_dims);
void avx2_gelu_mul(float *gate, const float *up, uint32_t n);
void avx2_soft_cap(float *x, uint32_t n, float cap);
void avx2_scale_add(float *acc, float a, const float *other, float b, uint32_t n);
void avx2_store_f16(void *k_page, void *v_page, uint32_t t, const float *k, const float *v,
                    uint32_t head_dim, uint32_t head_pad);
void avx2_store_f32(void *k_page, void *v_page, uint32_t t, const float *k, const float *v,
                    uint32_t head_dim, uint32_t head_pad);
void avx2_store_q8(void *k_part, void *v_part, uint32_t t, const float *k, const float *v,
                   uint32_t head_dim, uint32_t head_pad);
void avx2_qk_page_q8(const float *const *q, float *const *scores, uint32_t n_queries,
                     const void *k_part, uint32_t head_dim);
void avx2_pv_page_q8(const float *const *p, float *const *acc, uint32_t n_queries,
                     uint32_t n_tokens, const void *v_part, uint32_t head_pad);

#endif
