/* A model from a Hugging Face folder: config.json, safetensors and the tokenizer's files, presented
 * as the GGUF file that it would be. Metadata is translated in memory, tensors stay where the
 * shards are mapped. What GGUF's converters change in the weights is told by keys instead:
 * sluice.rope.halves (bool), sluice.norm.offset (f32); and what GGUF has no key for:
 * sluice.eog_token_ids (i32 array), sluice.space_prefix.first_only and .unless_space (bool: the
 * space of add_space_prefix goes only before the very beginning; not before a space). */
#ifndef ENGINE_MODEL_HF_H
#define ENGINE_MODEL_HF_H

#include "engine/model/gguf.h"

/* Files of the folder may be symbolic links, as in the hub's cache; what they lead to must be
 * regular files. On failure *why says what is wrong and in which file. */
MUST_CHECK enum status hf_open(const char *path, struct gguf **out, struct reason *why);

#endif
