/* What the CPU device keeps of each sequence for sampling: a copy of what the request asked, and
 * its tokens so far where penalties need them. Room for lists and histories is there from the
 * start: taking a slot doesn't fail for want of memory, and a token allocates nothing. The device's
 * owner calls; while rows are sampled the compute threads read. */
#ifndef ENGINE_CPU_SLOTS_H
#define ENGINE_CPU_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/history.h"
#include "engine/core/sampler.h"

struct slot {
    struct sampling sampling; /* its lists are the two below */
    struct logit_bias *bias;  /* (LOGIT_BIAS_MAX) */
    int32_t *end_ids;         /* (end_ids_cap) */
    uint32_t end_ids_cap;
    bool has_penalties; /* of this sequence: only then is the history its own */
    struct history history;
};

struct slots {
    struct slot *all; /* (n) */
    uint32_t n, n_vocab, max_context;
};

/* On failure slots_dispose frees what there is. */
MUST_CHECK enum status slots_init(struct slots *s, uint32_t n, uint32_t n_vocab,
                                  uint32_t max_context);
void slots_dispose(struct slots *s); /* zeroed is fine */
/* What init allocates. */
size_t slots_bytes(uint32_t n, uint32_t n_vocab, uint32_t max_context);

/* The device's slot_set. Bias and end ids outside the vocabulary can't be sampled and are left out.
 * ST_INVALID: no such slot, more than LOGIT_BIAS_MAX biases, more end ids than the vocabulary has,
 * more tokens than the context, a token outside the vocabulary. ST_NO_MEMORY: more end ids than
 * any known model and request have. After a failure the slot is greedy and holds nothing of an
 * earlier sequence. */
MUST_CHECK enum status slots_set(struct slots *s, uint32_t slot, const struct sampling *sampling,
                                 const int32_t *tokens, uint32_t n_prompt, uint32_t n_tokens);
/* The slot's sequence has sampled the token. False: it has had more distinct ones than a context
 * holds, so it isn't one sequence. */
MUST_CHECK bool slots_sampled(struct slots *s, uint32_t slot, int32_t id);

#endif
