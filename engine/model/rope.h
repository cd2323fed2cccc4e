/* RoPE's frequencies (Su et al. 2021), scaled as the model wants it. Pure; any thread. */
#ifndef ENGINE_MODEL_ROPE_H
#define ENGINE_MODEL_ROPE_H

#include "engine/model/model.h"

/* freqs[i], i < rope->dims / 2: radians per position of pair i. *magnitude: factor on cosine and
 * sine. `context_tokens` is what the device is opened for: it chooses LongRoPE's set once for all
 * (choosing by a sequence's length would make its cached keys wrong). `windowed`: for windowed
 * layers. */
void model_rope_frequencies(const struct model_rope *rope, uint32_t context_tokens, bool windowed,
                            double *freqs, float *magnitude);

#endif
