/* Parts of the scalar table that have files of their own; the contracts are in kernels.h. */
#ifndef ENGINE_CPU_SCALAR_H
#define ENGINE_CPU_SCALAR_H

#include "engine/cpu/kernels.h"

extern decode_row *const scalar_decode[TENSOR_TYPES];
extern packed_matmul *const scalar_packed[TENSOR_TYPES];

#endif
