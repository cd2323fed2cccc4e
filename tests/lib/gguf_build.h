/* Writes GGUF files for tests: any metadata and tensors (also wrong ones), and a tiny random model
 * of the Llama family with a byte-level BPE vocabulary. All in memory; failures of memory abort,
 * since a test has nothing better to do. One thread at a time. */
#ifndef TESTS_LIB_GGUF_BUILD_H
#define TESTS_LIB_GGUF_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/model/gguf.h"

/* Collect with the functions below, then gguf_build_finish. The fields may be set by hand to make
 * a file that lies about itself. */
struct gguf_build {
    struct buf kv;    /* metadata entries */
    struct buf infos; /* tensor table */
    struct buf data;  /* tensor data */
    uint64_t n_kv;    /* as written in the header */
    uint64_t n_tensors;
    uint32_t version;   /* 3 */
    uint32_t alignment; /* 32; data is laid out by it, the key is the caller's to write */
};

void gguf_build_init(struct gguf_build *b);
void gguf_build_dispose(struct gguf_build *b);

void gguf_build_u32(struct gguf_build *b, const char *key, uint32_t v);
void gguf_build_f32(struct gguf_build *b, const char *key, float v);
void gguf_build_bool(struct gguf_build *b, const char *key, bool v);
void gguf_build_string(struct gguf_build *b, const char *key, const char *v);
void gguf_build_strings(struct gguf_build *b, const char *key, const char *const *v, size_t n);
void gguf_build_i32s(struct gguf_build *b, const char *key, const int32_t *v, size_t n);
/* Key and type only: the caller appends the value to b->kv. */
void gguf_build_key(struct gguf_build *b, const char *key, enum gguf_type type);

/* Adds a tensor of `bytes` bytes, which need not fit its dims. */
void gguf_build_tensor(struct gguf_build *b, const char *name, uint32_t type, uint32_t n_dims,
                       const uint64_t *dims, const void *data, size_t bytes);
/* Adds a matrix (rows, cols), or with rows 0 a vector (cols), of random values in
 * [-scale, scale] + centre, stored as `type`; types that gguf_build_quantize lacks get random
 * blocks of the same deviation around 0. Continues the generator in *seed. */
void gguf_build_random(struct gguf_build *b, const char *name, enum tensor_type type, uint64_t rows,
                       uint64_t cols, float centre, float scale, uint64_t *seed);
/* Appends the file to *out. */
void gguf_build_finish(const struct gguf_build *b, struct buf *out);

/* n elements (a multiple of the block) of a quantized type, appended to *out: random codes and
 * factors under one scale, so that values have about the given deviation around 0. */
void gguf_build_random_blocks(enum tensor_type type, float deviation, size_t n, uint64_t *seed,
                              struct buf *out);

/* n floats as `type` (F32, F16, BF16, Q8_0 or Q4_1) stores them (n a multiple of the block),
 * appended to *out. */
void gguf_build_quantize(enum tensor_type type, const float *x, size_t n, struct buf *out);
/* The generator behind the random values: uniform in [-1, 1). */
float gguf_build_uniform(uint64_t *seed);

/* Token ids of the tiny vocabulary: five added tokens, 256 bytes, then one token per merge. */
enum {
    TINY_ENDOFTEXT = 0,  /* <|endoftext|>, CONTROL, unknown and padding */
    TINY_IM_START = 1,   /* <|im_start|>, CONTROL, BOS */
    TINY_IM_END = 2,     /* <|im_end|>, CONTROL, EOS */
    TINY_TOOL_CALL = 3,  /* <tool_call>, USER_DEFINED */
    TINY_TOOL_CALLS = 4, /* <tool_call>s, USER_DEFINED: the longer match wins */
    TINY_BYTE0 = 5,      /* byte b is token TINY_BYTE0 + b */
    TINY_MERGE0 = TINY_BYTE0 + 256,
    TINY_N_MERGES = 27,
    TINY_VOCAB = TINY_MERGE0 + TINY_N_MERGES, /* 288 */
};

/* Zero means the value in brackets. */
struct tiny_model_options {
    uint64_t seed;             /* [1]; the same options give the same file, byte for byte */
    enum tensor_type type;     /* of every matrix (TENSOR_F32 is 0); norms are F32 */
    uint32_t n_layers;         /* [2] */
    uint32_t n_embd;           /* [64] */
    uint32_t n_heads;          /* [4] */
    uint32_t n_kv_heads;       /* [2] */
    uint32_t n_ff;             /* [96] */
    uint32_t context_tokens;   /* [512] */
    bool untied;               /* an output.weight of its own */
    bool add_bos;              /* tokenizer.ggml.add_bos_token */
    const char *chat_template; /* [a ChatML one with a generation prompt] */
    const char *pre;           /* ["smollm"] */
};

/* Appends the file to *out. Logits at random weights have a standard deviation of about 1 to 3, so
 * that greedy choices are clear and sampling is not flat. `o` may be NULL. */
void tiny_model_build(const struct tiny_model_options *o, struct buf *out);
/* Only the metadata of its tokenizer, for tests that change the rest. */
void tiny_model_vocabulary(struct gguf_build *b, const struct tiny_model_options *o);
/* Writes the file to `path`; aborts when that fails. */
void tiny_model_write(const struct tiny_model_options *o, const char *path);

#endif
