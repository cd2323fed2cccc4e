/* Parts of the AVX-512 table that have files of their own; the contracts are in kernels.h. */
#ifndef ENGINE_CPU_AVX512_H
#define ENGINE_CPU_AVX512_H

#include "engine/cpu/kernels.h"

void avx512_dot_rows(const float *w, size_t ldw, uint32_t n_rows, const float *x, size_t ldx,
                     uint32_t n_cols, size_t k_pad, const struct outputs *out);
extern packed_matmul *const avx512_packed[TENSOR_TYPES];
void avx512_qk_page_q8(const float *const *q, float *const *scores, uint32_t n_queries,
                       const void *k_part, uint32_t head_dim);
void avx512_pv_page_q8(const float *const *p, float *const *acc, uint32_t n_queries,
                       uint32_t n_tokens, const void *v_part, uint32_t head_pad);

#endif
