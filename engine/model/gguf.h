/* GGUF files (v2 and v3; the format description in ggml's documentation), memory-mapped read-only
 * and parsed strictly: every count, length, offset and product is checked against the file's size
 * before use. A struct gguf is immutable after gguf_open and may be read by any thread; strings and
 * arrays it hands out are borrowed from it. */
#ifndef ENGINE_MODEL_GGUF_H
#define ENGINE_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Ids as in the file. */
enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_1 = 3,
    TENSOR_Q8_0 = 8,
    TENSOR_BF16 = 30,
};

/* Name of any type id of the format, also those we don't compute ("Q4_K"); NULL for unknown ids. */
const char *tensor_type_name(uint32_t type);
/* Elements and bytes of one block: F32 1/4, F16 and BF16 1/2, Q4_1 32/20, Q8_0 32/34. False: not a
 * type that we compute. */
bool tensor_type_block(uint32_t type, uint32_t *elements, uint32_t *bytes);

#define TENSOR_DIMS_MAX 4
struct tensor {
    const char *name;               /* NUL-terminated, valid UTF-8 */
    uint32_t type;                  /* enum tensor_type, always one that we compute */
    uint32_t n_dims;                /* 1..4 */
    uint64_t dims[TENSOR_DIMS_MAX]; /* dims[0] is the contiguous one (row length); unused are 1 */
    const void *data;               /* in the mapping; aligned to the file's general.alignment */
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

/* Maps and checks the file. On failure *why says what is wrong and where. */
MUST_CHECK enum status gguf_open(const char *path, struct gguf **out, struct reason *why);
/* The same over bytes in memory (fuzzing, tests); borrows them. */
MUST_CHECK enum status gguf_open_memory(const void *data, size_t len, struct gguf **out,
                                        struct reason *why);
void gguf_close(struct gguf *g); /* NULL is fine */

uint32_t gguf_version(const struct gguf *g);
size_t gguf_file_bytes(const struct gguf *g);
/* The whole file, and where in it the tensor data begins: for hashing. */
const void *gguf_bytes(const struct gguf *g);
size_t gguf_data_start(const struct gguf *g);

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
