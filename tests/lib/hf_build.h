/* Writes safetensors files and Hugging Face folders for tests, right ones and wrong ones. Failures
 * of memory and of the file system abort, since a test has nothing better to do. One thread at a
 * time. */
#ifndef TESTS_LIB_HF_BUILD_H
#define TESTS_LIB_HF_BUILD_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Collect rows, then finish. */
struct st_build {
    struct buf rows; /* members of the header, comma-separated */
    struct buf data;
};

void st_build_init(struct st_build *b);
void st_build_dispose(struct st_build *b);
/* Adds a tensor of zeros with up to two dimensions (cols 0: one). dtype "F32", "F16", "BF16". */
void st_build_tensor(struct st_build *b, const char *name, const char *dtype, uint64_t rows,
                     uint64_t cols);
/* Adds a member as it is: "\"a\":{...}". */
void st_build_row(struct st_build *b, const char *row);
/* Appends the file to *out; the header is padded with spaces, so that the data is aligned to 8. */
void st_build_finish(const struct st_build *b, struct buf *out);
/* A file of this header, without padding, and `bytes` zeros. */
void st_build_raw(const char *header, size_t bytes, struct buf *out);

struct hf_folder {
    char path[64];
};

void hf_folder_init(struct hf_folder *f); /* a new one under /tmp */
void hf_folder_dispose(struct hf_folder *f);
void hf_folder_write(const struct hf_folder *f, const char *name, const void *data, size_t len);
void hf_folder_text(const struct hf_folder *f, const char *name, const char *text);
void hf_folder_shard(const struct hf_folder *f, const char *name, const struct st_build *b);
/* The path of a file in it: NUL-terminated, until the next call. */
const char *hf_folder_file(const struct hf_folder *f, const char *name);

/* config.json of a small model of a class, without its braces: so that a test adds members. Two
 * layers, width 32, 4 heads of 8, 2 KV heads, feed-forward 48, 288 tokens, context 64. */
#define HF_TINY_SIZES                                                                              \
    "\"num_hidden_layers\":2,\"hidden_size\":32,\"num_attention_heads\":4,"                        \
    "\"num_key_value_heads\":2,\"head_dim\":8,\"intermediate_size\":48,\"vocab_size\":288,"        \
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-05"
#define HF_TINY_LLAMA "\"architectures\":[\"LlamaForCausalLM\"]," HF_TINY_SIZES

/* The tensors of that Llama, of layers [from, to); `outside` adds those of no layer. */
void hf_tiny_llama_tensors(struct st_build *b, const char *dtype, unsigned from, unsigned to,
                           bool outside);
/* config.json, model.safetensors (F32) and the tokenizer. */
void hf_tiny_llama_write(const struct hf_folder *f);
/* Appends tokenizer.json of the vocabulary of tests/lib/gguf_build.h's tiny model. */
void hf_tiny_tokenizer(struct buf *out);

#endif
