/* What distinguishes one decoder architecture from another, as a row of a table each: the forward
 * pass reads these flags and has no code that names a model. Sizes and factors come from the file
 * (struct model_shape). Immutable. */
#ifndef ENGINE_MODEL_ARCH_H
#define ENGINE_MODEL_ARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum norm_kind {
    NORM_RMS, /* x / rms(x) * w (Zhang and Sennrich 2019); encoders bring mean and bias with them */
};

/* Where a block (attention, feed-forward) is normed: what it reads, what it gives back to the
 * residual stream, or both. */
enum norm_place {
    NORM_BEFORE = 1,
    NORM_AFTER = 2,
    NORM_AROUND = NORM_BEFORE | NORM_AFTER,
};

/* Norms of queries and keys before they are rotated. */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD, /* each head by itself; one weight of head_dim for all */
    QK_NORM_ALL,  /* all heads as one vector */
};

enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU_TANH, /* the tanh approximation (Hendrycks and Gimpel 2016) */
};

/* Which pairs of a head are rotated together. */
enum rope_pairs {
    ROPE_ADJACENT, /* (2i, 2i + 1) */
    ROPE_HALVES,   /* (i, i + rope_dims / 2) */
};

/* How a feed-forward block picks its experts. */
enum routing {
    ROUTING_NONE, /* dense */
};

struct arch {
    const char *name; /* general.architecture */
    enum norm_kind norm_kind;
    enum norm_place norm_place;
    enum qk_norm qk_norm;
    enum activation activation;
    enum rope_pairs rope_pairs; /* as GGUF files of this architecture store Q and K */
    enum routing routing;
    bool causal;
    bool qkv_bias;
    bool fused;           /* Q, K and V are one tensor, and so are gate and up */
    bool embedding_width; /* embeddings are scaled by the square root of the width */
    bool windows;         /* some layers may have one */
    uint32_t window;      /* where the file names none; 0: none */
    uint32_t period;      /* of windowed layers each `period`th is global; 0: none is */
    float window_base;    /* RoPE base of windowed layers where the file names none; 0: the same */
    float attention_cap;  /* where the file names none; 0: none */
    float logit_cap;
    uint32_t width_scaled; /* models of so many layers scale scores by the width per head, which
                              their GGUF files don't say; 0: none */
};

/* NULL: not supported. */
const struct arch *arch_find(const char *name, size_t len);
/* "gemma2, gemma3, ..." for messages. */
void arch_names(struct buf *out);

#endif
