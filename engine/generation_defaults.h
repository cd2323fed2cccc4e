/* What the makers of a model sample with: GGUF's general.sampling.* keys, which a Hugging Face
 * folder's generation_config.json becomes, too. Values only; any thread. */
#ifndef ENGINE_GENERATION_DEFAULTS_H
#define ENGINE_GENERATION_DEFAULTS_H

#include <stdint.h>

struct gguf;

/* Within the ranges of struct sampling; -1: the file says nothing. */
struct engine_defaults {
    float temperature, top_p, min_p, repetition_penalty;
    int32_t top_k; /* 0: off */
};

/* A value that no request may have is logged and counts as absent: the model works without. */
void generation_defaults_read(const struct gguf *g, struct engine_defaults *out);

#endif
