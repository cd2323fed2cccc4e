/* Hugging Face's model classes, in tables: GGUF's name of the architecture, what its config.json
 * means where it is silent, and where its tensors belong. Constants. */
#ifndef ENGINE_MODEL_HF_ARCH_H
#define ENGINE_MODEL_HF_ARCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Where a layer's norms are; decides what "post_attention_layernorm" is. */
enum hf_norms {
    HF_NORMS_BEFORE = 1, /* of each block's input */
    HF_NORMS_AROUND = 2, /* of its input and its output */
    HF_NORMS_AFTER = 4,  /* of its output */
};

/* Which layers have the config's sliding_window, where it doesn't list them (layer_types). */
enum hf_window {
    HF_WINDOW_NONE,      /* the class knows no window */
    HF_WINDOW_ALL,       /* every layer, where sliding_window is a number */
    HF_WINDOW_UPPER,     /* those from max_window_layers on, where use_sliding_window is true */
    HF_WINDOW_ALTERNATE, /* layers 0, 2, 4, ... */
    HF_WINDOW_PERIOD,    /* all but each sliding_window_pattern-th */
};

/* What the class takes for a number that config.json leaves out. */
struct hf_default {
    const char *key; /* NULL ends the list */
    double value;
};

struct hf_arch {
    const char *class_name; /* config.json's architectures */
    const char *gguf;       /* general.architecture */
    const char *activation_key, *activation;
    enum hf_norms norms;
    enum hf_window window;
    bool halves; /* Q and K rows are not permuted as GGUF files of this architecture have them */
    bool unit_norms;   /* norm weights are stored without their 1 */
    bool tied;         /* tie_word_embeddings where the config is silent */
    bool partial_rope; /* partial_rotary_factor is known */
    bool soft_caps;    /* attn_logit_softcapping and final_logit_softcapping */
    bool query_scale;  /* query_pre_attn_scalar */
    bool multipliers;  /* Granite's four */
    bool nested;       /* the decoder's config is text_config, beside other parts we don't run */
    const struct hf_default *defaults;
};

/* NULL: not supported. */
const struct hf_arch *hf_arch_find(const char *class_name);
/* "Gemma2ForCausalLM, ..." for messages. */
void hf_arch_names(struct buf *out);

/* What becomes of a tensor. */
enum hf_place {
    HF_PLACE_KNOWN,   /* *out is its GGUF name */
    HF_PLACE_IGNORED, /* a buffer that is computed, or of a part that we don't run */
    HF_PLACE_NONE,    /* of no model of this class */
};
#define HF_NAME_BYTES 64
enum hf_place hf_arch_place(const struct hf_arch *a, const char *name, char out[HF_NAME_BYTES]);

#endif
