/* generation_config.json of a Hugging Face folder: what its makers sample with, as GGUF's
 * general.sampling.* keys. Its token ids are hf_special.c's. Pure. */
#ifndef ENGINE_MODEL_HF_GENERATION_H
#define ENGINE_MODEL_HF_GENERATION_H

#include "engine/model/hf_json.h"
#include "engine/model/hf_meta.h"

/* `text` may be absent. A member that is null or absent gives no key; do_sample false gives
 * temperature 0, for greedy is what it means. ST_CORRUPT: a member has another type than
 * transformers writes. */
MUST_CHECK enum status hf_generation_put(struct hf_span text, struct hf_meta *m,
                                         struct reason *why);

#endif
