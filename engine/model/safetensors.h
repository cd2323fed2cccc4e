/* One safetensors file (the format of Hugging Face's safetensors, its README's "Format" section):
 * eight bytes of header length, a JSON header, tensor data. Parsed strictly: the data is covered by
 * the tensors without gap or overlap, a range is as long as shape times element, names are there
 * once. F32, F16 and BF16 only; dimensions in GGUF's order (dims[0] is the contiguous one, the last
 * of the shape). Immutable after safetensors_read; any thread may read it. */
#ifndef ENGINE_MODEL_SAFETENSORS_H
#define ENGINE_MODEL_SAFETENSORS_H

#include "engine/model/gguf_file.h"

struct safetensors {
    struct arena arena; /* names and tables; the data stays in the caller's bytes */
    struct name_index names;
    struct tensor *tensors; /* names.n */
    size_t data_start;
};

/* Refuses, with the tensor's name: another dtype, a scalar, more than TENSOR_DIMS_MAX dimensions, a
 * dimension of 0, an element that lies across its own alignment. On failure nothing is left to
 * dispose of. */
MUST_CHECK enum status safetensors_read(struct safetensors *st, const void *bytes, size_t len,
                                        struct reason *why);
void safetensors_dispose(struct safetensors *st);

#endif
