/* What changes a row's logits before temperature: bias, min_tokens, a mask, penalties, in this
 * order. Pure. NaN and +infinity stay what they are, whatever is set, so that a damaged row is
 * still seen as one; nothing finite becomes +infinity or NaN. */
#ifndef ENGINE_CORE_ADJUST_H
#define ENGINE_CORE_ADJUST_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/history.h"
#include "engine/sampling.h"

struct adjustment {
    const struct sampling *sampling; /* bias and end ids are in the vocabulary */
    uint32_t output_index;           /* of the token to be sampled */
    const struct history *history;   /* NULL where sampling_has_penalties is false */
    const uint32_t *mask;            /* (n_vocab + 31) / 32 words as in struct row_mask; NULL: all
                                        are allowed */
};

bool sampling_has_penalties(const struct sampling *s);
/* Whether adjust_logits would change anything. */
bool adjust_is_needed(const struct adjustment *a);
/* Changes logits (n_vocab) in place. Forbidden tokens become -infinity. Repetition penalty as
 * Hugging Face's RepetitionPenaltyLogitsProcessor, then frequency and presence as OpenAI's API. */
void adjust_logits(const struct adjustment *a, float *logits, uint32_t n_vocab);

#endif
