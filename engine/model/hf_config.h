/* config.json of a Hugging Face folder, read strictly and written as GGUF's metadata. What changes
 * the mathematics and is not computed here is refused by its name. Pure: bytes in, metadata out. */
#ifndef ENGINE_MODEL_HF_CONFIG_H
#define ENGINE_MODEL_HF_CONFIG_H

#include "engine/model/hf_rope.h"

#define HF_LAYERS_MAX 4096

struct hf_config {
    json_t *root; /* owned */
    json_t *text; /* the decoder's keys: the root, or an object in it */
    const struct hf_arch *arch;
    uint32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_ff, n_vocab, context_tokens;
    double norm_eps;
    bool tied;                    /* the output is the embedding */
    uint32_t window;              /* 0: none */
    bool windowed[HF_LAYERS_MAX]; /* by layer */
    struct hf_rope rope;
};

/* On failure nothing is left to dispose of. The struct is large: not for the stack. */
MUST_CHECK enum status hf_config_read(struct hf_config *c, const char *text, size_t len,
                                      struct reason *why);
void hf_config_dispose(struct hf_config *c);
/* Appends all but the tokenizer's keys. */
MUST_CHECK enum status hf_config_put(const struct hf_config *c, struct hf_meta *m,
                                     struct reason *why);

#endif
