/* Log-probabilities as they are reported: the log-softmax of a row's raw logits, before bias,
 * penalties and temperature. Pure; the logits are borrowed. */
#ifndef ENGINE_CORE_LOGPROBS_H
#define ENGINE_CORE_LOGPROBS_H

#include <stdint.h>

#include "base/status.h"
#include "engine/sampling.h"

struct logprobs {
    const float *logits; /* (n_vocab) */
    uint32_t n_vocab;
    double log_total; /* log of the sum of e^logit */
};

/* One pass over the vocabulary. ST_INTERNAL when a logit is NaN or +infinity, or all are
 * -infinity. */
MUST_CHECK enum status logprobs_init(struct logprobs *l, const float *logits, uint32_t n_vocab);
/* At most 0; id is in the vocabulary. */
float logprobs_at(const struct logprobs *l, int32_t id);
/* The n most probable tokens, descending, ties by ascending id. Returns how many there are:
 * min(n, n_vocab, TOP_LOGPROBS_MAX), less where the others' probability is 0. */
uint32_t logprobs_tops(const struct logprobs *l, uint32_t n, struct token_logprob *out);

#endif
