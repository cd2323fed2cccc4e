/* The draw, pure: logits in, one token id out. Order: temperature, top_k, top_p, min_p; what comes
 * before them is adjust.h's. Randomness is a counter-based function of (seed, choice index, output
 * index) only, so the same request gives the same tokens whatever else is in the batch. Argmax ties
 * go to the lowest id. */
#ifndef ENGINE_CORE_SAMPLER_H
#define ENGINE_CORE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/sampling.h"

struct sampler_scratch; /* per thread: sorting space for n_vocab */
struct sampler_scratch *sampler_scratch_new(uint32_t n_vocab);
void sampler_scratch_free(struct sampler_scratch *s);
size_t sampler_scratch_bytes(uint32_t n_vocab); /* of one */

/* Uniform in [0, 1) from (seed, choice, output index): Philox4x32-10 (Salmon et al., SC 2011). */
double sampler_uniform(uint64_t seed, uint32_t choice, uint32_t output_index);

/* logits: (n_vocab), not changed. ST_INTERNAL when a logit is NaN or +infinity,
 * ST_NO_CHOICE when all are -infinity: that fails this request alone. */
MUST_CHECK enum status sampler_pick(const struct sampling *p, uint32_t output_index,
                                    const float *logits, uint32_t n_vocab,
                                    struct sampler_scratch *scratch, int32_t *out);

/* Log-softmax of the raw logits at `id`, for one id of a row; NaN for a damaged row. */
float sampler_logprob(const float *logits, uint32_t n_vocab, int32_t id);

#endif
