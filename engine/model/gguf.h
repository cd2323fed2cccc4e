/* GGUF files (v2 and v3; the format description in ggml's documentation), whole or split, memory-
 * mapped read-only and parsed strictly: every count, length, offset and product is checked against
 * the file's size before use. A Hugging Face folder is presented as one, too (engine/model/hf.h). A
 * struct gguf is immutable after gguf_open and may be read by any thread; strings and arrays it
 * hands out are borrowed from it. */
#ifndef ENGINE_MODEL_GGUF_H
#define ENGINE_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The types that we compute, by their ids in the file. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ4_NL = 20,
    TENSOR_IQ4_XS = 23,
    TENSOR_BF16 = 30,
};
#define TENSOR_TYPES (TENSOR_BF16 + 1) /* length of a table by type */

/* Name of any type id of the format, also those we don't compute ("Q8_K"); NULL for unknown ids. */
const char *tensor_type_name(uint32_t type);
/* Elements and bytes of one block, of which a row has a whole number: F32 1/4, F16 and BF16 1/2,
 * Q4_0 and IQ4_NL 32/18, Q4_1 32/20, Q5_0 32/22, Q5_1 32/24, Q8_0 32/34, Q2_K 256/84, Q3_K 256/110,
 * Q4_K 256/144, Q5_K 256/176, Q6_K 256/210, IQ4_XS 256/136. False: not a type that we compute. */
bool tensor_type_block(uint32_t type, uint32_t *elements, uint32_t *bytes);
/* The names of all types that we compute, ", " between them, cut to `size` bytes with the NUL. */
void tensor_type_list(char *out, size_t size);

#define TENSOR_DIMS_MAX 4
struct tensor {
    const char *name;               /* NUL-terminated, valid UTF-8 */
    uint32_t type;                  /* enum tensor_type, always one that we compute */
    uint32_t n_dims;                /* 1..4 */
    uint64_t dims[TENSOR_DIMS_MAX]; /* dims[0] is the contiguous one (row length); unused are 1 */
    const void *data; /* in a mapping; aligned to the GGUF file's general.alignment, in a
                         safetensors file to the element */
    size_t bytes;
};

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_string {
    const char *data; /* not NUL-terminated; valid UTF-8 is NOT guaranteed (vocabularies) */
    size_t len;
};

struct gguf;

/* Maps and checks the file, and where it is the first of a split model
 * (NAME-00001-of-0000N.gguf) the others beside it. On failure *why says what is wrong and where. */
MUST_CHECK enum status gguf_open(const char *path, struct gguf **out, struct reason *why);
/* One whole file in memory (fuzzing, tests); borrows the bytes. */
MUST_CHECK enum status gguf_open_memory(const void *data, size_t len, struct gguf **out,
                                        struct reason *why);
void gguf_close(struct gguf *g); /* NULL is fine */

uint32_t gguf_version(const struct gguf *g);
/* Whether it stands for a Hugging Face folder (engine/model/hf.h). */
bool gguf_is_folder(const struct gguf *g);
/* Of all its parts. */
size_t gguf_file_bytes(const struct gguf *g);

/* What the model was read from: the file; the files of a split one; for a folder the metadata as it
 * was translated, then each shard. */
struct gguf_part {
    const uint8_t *bytes;
    size_t len;
    size_t data_start; /* header, metadata and tensor table come before, tensor data from here */
};
/* NULL past the end. */
const struct gguf_part *gguf_part_at(const struct gguf *g, size_t i);

/* Metadata. False when the key is absent or has another type; integers of any width are accepted
 * where the value fits; f64 and f32 both give f32. */
bool gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out);
bool gguf_get_f32(const struct gguf *g, const char *key, float *out);
bool gguf_get_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *out);
bool gguf_has(const struct gguf *g, const char *key);
/* Arrays: element type and count; element access by index (index < n). */
bool gguf_array(const struct gguf *g, const char *key, enum gguf_type *type, size_t *n);
/* O(i): strings have no index. */
bool gguf_array_string(const struct gguf *g, const char *key, size_t i, struct gguf_string *out);
bool gguf_array_i32(const struct gguf *g, const char *key, size_t i, int32_t *out);
/* False past the end and for arrays of other types. */
bool gguf_array_bool(const struct gguf *g, const char *key, size_t i);
bool gguf_array_f32(const struct gguf *g, const char *key, size_t i, float *out); /* of f32 */
/* The bytes of an array of u8 or i8, borrowed. */
bool gguf_array_bytes(const struct gguf *g, const char *key, const void **out, size_t *n);
/* Sequential, O(1) per element: fills out[0..n) (n from gguf_array). */
bool gguf_array_strings(const struct gguf *g, const char *key, struct gguf_string *out, size_t n);

/* Enumerate metadata for `inspect`: key i, its type; NULL past the end. */
const char *gguf_key(const struct gguf *g, size_t i, enum gguf_type *type);

size_t gguf_n_tensors(const struct gguf *g);
const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct tensor *gguf_tensor(const struct gguf *g, const char *name); /* NULL: absent */

#endif
