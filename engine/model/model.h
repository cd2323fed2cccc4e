/* A model as the devices and the text side need it: structure, shape and weights, checked against
 * each other, for the architectures of engine/model/arch.h. Immutable after model_open; any thread
 * may read it. */
#ifndef ENGINE_MODEL_MODEL_H
#define ENGINE_MODEL_MODEL_H

#include <stdint.h>

#include "base/status.h"
#include "engine/model/arch.h"
#include "engine/model/gguf.h"

/* Factors on RoPE's frequencies, and on the length of rotated vectors. */
enum rope_scaling {
    ROPE_PLAIN,
    ROPE_LINEAR,   /* positions divided by `factor` (Chen et al. 2023) */
    ROPE_YARN,     /* Peng et al. 2023 */
    ROPE_LONGROPE, /* a divisor per frequency, one set for short and one for long contexts (Ding et
                      al. 2024) */
};

struct model_rope {
    uint32_t dims; /* rotated dimensions of a head */
    enum rope_pairs pairs;
    float base;
    float window_base; /* of windowed layers, which then are not scaled; 0: as the others */
    enum rope_scaling scaling;
    float factor;
    uint32_t original_context;                           /* trained before it was scaled */
    float magnitude;                                     /* attn_factor: on cosine and sine */
    float beta_fast, beta_slow, ext_factor;              /* YaRN */
    const struct tensor *divisors;                       /* (dims / 2) or NULL: Llama 3's */
    const struct tensor *short_divisors, *long_divisors; /* (dims / 2): LongRoPE's */
};

struct model_shape {
    uint32_t n_layers;
    uint32_t n_embd;     /* width of the residual stream */
    uint32_t n_heads;    /* query heads */
    uint32_t n_kv_heads; /* divides n_heads */
    uint32_t head_dim;
    uint32_t n_ff;
    uint32_t n_vocab;
    uint32_t context_tokens; /* what the file says it was trained for */
    float norm_eps;
    float norm_offset;     /* added to every norm's weight */
    uint32_t window;       /* a windowed layer's token sees so many, itself among them; 0: none */
    float embedding_scale; /* on embeddings */
    float attention_scale; /* on scores */
    float attention_cap;   /* score = cap * tanh(score / cap); 0: none */
    float residual_scale;  /* on what a block adds to the residual stream */
    float logit_scale;     /* on logits */
    float logit_cap;       /* as attention_cap */
    struct model_rope rope;
};

/* All weights of a layer: (rows = dims[1], cols = dims[0]); y = W x. Norms and biases are vectors
 * (their one dimension given); NULL where the architecture has none. */
struct model_layer {
    const struct tensor *attn_norm;      /* (n_embd): of the block's input */
    const struct tensor *attn_q;         /* (n_heads * head_dim, n_embd) */
    const struct tensor *attn_k;         /* (n_kv_heads * head_dim, n_embd) */
    const struct tensor *attn_v;         /* (n_kv_heads * head_dim, n_embd) */
    const struct tensor *attn_q_bias;    /* (n_heads * head_dim) */
    const struct tensor *attn_k_bias;    /* (n_kv_heads * head_dim) */
    const struct tensor *attn_v_bias;    /* (n_kv_heads * head_dim) */
    const struct tensor *attn_q_norm;    /* (head_dim), or of all heads */
    const struct tensor *attn_k_norm;    /* (head_dim), or of all heads */
    const struct tensor *attn_output;    /* (n_embd, n_heads * head_dim) */
    const struct tensor *attn_post_norm; /* (n_embd): of what the block gives */
    const struct tensor *ffn_norm;       /* (n_embd) */
    const struct tensor *ffn_gate;       /* (n_ff, n_embd) */
    const struct tensor *ffn_up;         /* (n_ff, n_embd) */
    const struct tensor *ffn_down;       /* (n_embd, n_ff) */
    const struct tensor *ffn_post_norm;  /* (n_embd) */
    struct tensor parts[5];              /* of fused tensors: q, k, v, gate, up point here */
    bool windowed;
};

struct model {
    struct gguf *gguf; /* owned */
    const struct arch *arch;
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

/* The file behind a model, without a look at its weights (a vocabulary's file has none): GGUF as it
 * is, or a Hugging Face folder as the GGUF file that it would be. */
MUST_CHECK enum status model_open_file(const char *path, struct gguf **out, struct reason *why);
/* Refuses by name what we don't compute: another architecture, a tensor type, a RoPE scaling, an
 * expert count, an unknown or missing tensor, a shape that doesn't fit. */
MUST_CHECK enum status model_open(const char *path, struct model **out, struct reason *why);
/* From memory (fuzzing, tests); borrows the bytes. */
MUST_CHECK enum status model_open_memory(const void *data, size_t len, struct model **out,
                                         struct reason *why);
void model_close(struct model *m); /* NULL is fine */

#endif
