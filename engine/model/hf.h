/* A model from a Hugging Face folder: config.json, safetensors and the tokenizer's files, presented
 * as the GGUF file that it would be. Metadata is translated in memory, tensors stay where the
 * shards are mapped. What GGUF's converters change in the weights is told by keys instead:
 * sluice.rope.halves (bool), sluice.norm.offset (f32); and what GGUF has no key for:
 * sluice.eog_token_ids (i32 array), sluice.space_prefix.first_only and .unless_space (bool: the
 * space of add_space_prefix goes only before the very beginning; not before a space),
 * sluice.token_lstrip and .token_rstrip (i32 arrays: added tokens that take the white space before
 * them, behind them along). Special tokens are matched in the text as it was given, also where the
 * folder has them "normalized" (as older ones of Llama 2 do): they come from templates, never from
 * a user's text, and a template spells them as they are. */
#ifndef ENGINE_MODEL_HF_H
#define ENGINE_MODEL_HF_H

#include "engine/model/gguf.h"

/* Files of the folder may be symbolic links, as in the hub's cache; what they lead to must be
 * regular files. On failure *why says what is wrong and in which file. */
MUST_CHECK enum status hf_open(const char *path, struct gguf **out, struct reason *why);

#endif
