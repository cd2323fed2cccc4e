/* A model as the devices and the text side need it: shape and weights, checked against each other,
 * from a GGUF file of the Llama family. Immutable after model_open; any thread may read it. */
#ifndef ENGINE_MODEL_MODEL_H
#define ENGINE_MODEL_MODEL_H

#include <stdint.h>

#include "base/status.h"
#include "engine/model/gguf.h"

struct model_shape {
    uint32_t n_layers;
    uint32_t n_embd;     /* width of the residual stream */
    uint32_t n_heads;    /* query heads */
    uint32_t n_kv_heads; /* divides n_heads */
    uint32_t head_dim;
    uint32_t n_ff;
    uint32_t n_vocab;
    uint32_t context_tokens; /* what the file says it was trained for */
    uint32_t rope_dims;      /* rotated dimensions of a head; pairs (2i, 2i+1): the GGUF llama
                                convention, with Q and K rows permuted accordingly by the converter */
    float rope_base;
    float norm_eps;
};

/* All weights of a layer: (rows = dims[1], cols = dims[0]); y = W x. */
struct model_layer {
    const struct tensor *attn_norm;   /* (n_embd) */
    const struct tensor *attn_q;      /* (n_heads * head_dim, n_embd) */
    const struct tensor *attn_k;      /* (n_kv_heads * head_dim, n_embd) */
    const struct tensor *attn_v;      /* (n_kv_heads * head_dim, n_embd) */
    const struct tensor *attn_output; /* (n_embd, n_heads * head_dim) */
    const struct tensor *ffn_norm;    /* (n_embd) */
    const struct tensor *ffn_gate;    /* (n_ff, n_embd) */
    const struct tensor *ffn_up;      /* (n_ff, n_embd) */
    const struct tensor *ffn_down;    /* (n_embd, n_ff) */
};

struct model {
    struct gguf *gguf; /* owned */
    struct model_shape shape;
    const struct tensor *token_embd;  /* (n_vocab, n_embd) */
    const struct tensor *output_norm; /* (n_embd) */
    const struct tensor *output;      /* (n_vocab, n_embd); token_embd where the file ties them */
    struct model_layer *layers;       /* n_layers, owned */
    char name[128];                   /* general.name, printable */
    char revision[65]; /* hex SHA-256 over the file's header, metadata and tensor table, its size,
                          and 64 samples of 64 KiB spread evenly over its tensor data: two files
                          that differ in a weight here or there may share it, two builds do not */
};

/* Refuses by name what we don't compute: another architecture, a tensor type, a RoPE scaling, a
 * bias tensor, an expert count, an unknown or missing tensor, a shape that doesn't fit. */
MUST_CHECK enum status model_open(const char *path, struct model **out, struct reason *why);
/* From memory (fuzzing, tests); borrows the bytes. */
MUST_CHECK enum status model_open_memory(const void *data, size_t len, struct model **out,
                                         struct reason *why);
void model_close(struct model *m); /* NULL is fine */

#endif
