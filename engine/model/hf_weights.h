/* The weights of a Hugging Face folder: model.safetensors, or the shards that
 * model.safetensors.index.json lists. */
#ifndef ENGINE_MODEL_HF_WEIGHTS_H
#define ENGINE_MODEL_HF_WEIGHTS_H

#include "engine/model/safetensors.h"

struct hf_weights {
    struct arena arena; /* names */
    struct owned_part *parts;
    struct safetensors *shards; /* of the parts */
    size_t n;
};

/* `dir` is the open folder. A shard is a file of the folder itself, and each tensor is where the
 * index says, and nowhere else. On failure nothing is left to dispose of. */
MUST_CHECK enum status hf_weights_open(struct hf_weights *w, int dir, struct reason *why);
void hf_weights_dispose(struct hf_weights *w);
size_t hf_weights_n_tensors(const struct hf_weights *w);

/* Maps a text of the folder that has at most `max` bytes and is valid UTF-8. ST_NOT_FOUND: the
 * folder lacks it. */
MUST_CHECK enum status hf_text_map(int dir, const char *name, size_t max, struct owned_part *out,
                                   struct reason *why);

#endif
