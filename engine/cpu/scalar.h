/* Parts of the scalar table that have files of their own; the contracts are in kernels.h. */
#ifndef ENGINE_CPU_SCALAR_H
#define ENGINE_CPU_SCALAR_H

#include "engine/cpu/kernels.h"

extern decode_row *const scalar_decode[TENSOR_TYPES];
extern packed_matmul *const scalar_packed[TENSOR_TYPES];
void scalar_store_q8(void *k_part, void *v_part, uint32_t t, const float *k, const float *v,
                     uint32_t head_dim, uint32_t head_pad);
void scalar_qk_page_q8(const float *const *q, float *const *scores, uint32_t n_queries,
                       const void *k_part, uint32_t head_dim);
void scalar_pv_page_q8(const float *const *p, float *const *acc, uint32_t n_queries,
                       uint32_t n_tokens, const void *v_part, uint32_t head_pad);

#endif
