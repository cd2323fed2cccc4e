/* Matrix products of the AVX-512 table; the contracts are in kernels.h. */
#ifndef ENGINE_CPU_AVX512_H
#define ENGINE_CPU_AVX512_H

#include "engine/cpu/kernels.h"

void avx512_dot_rows(const float *w, size_t ldw, uint32_t n_rows, const float *x, size_t ldx,
                     uint32_t n_cols, size_t k_pad, const struct outputs *out);
extern packed_matmul *const avx512_packed[TENSOR_TYPES];

#endif
