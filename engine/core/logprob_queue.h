/* Samples of one choice whose text is not out yet: the detokenizer holds back what may begin a stop
 * string and what is half a character. Each has at least one byte that is held back, so what the
 * detokenizer can hold bounds the queue, which is allocated once. One thread at a time. */
#ifndef ENGINE_CORE_LOGPROB_QUEUE_H
#define ENGINE_CORE_LOGPROB_QUEUE_H

#include <stdint.h>

#include "base/status.h"
#include "engine/sampling.h"

struct queued_sample {
    uint64_t end; /* fed bytes up to and with this token's */
    int32_t id;
    float logprob;
    uint32_t n_tops;
};

struct logprob_queue {
    struct queued_sample *samples; /* (cap), a ring; NULL: nobody wants log-probabilities */
    struct token_logprob *tops;    /* (cap, tops_max) */
    uint32_t cap, tops_max, first, n;
};

/* Room for held_bytes_max samples and the one that comes then, each with up to tops_max. */
MUST_CHECK enum status logprob_queue_init(struct logprob_queue *q, uint32_t held_bytes_max,
                                          uint32_t tops_max);
/* Zeroed is fine. */
void logprob_queue_dispose(struct logprob_queue *q);

/* `end` grows from sample to sample. Copies the tops. */
void logprob_queue_push(struct logprob_queue *q, const struct token_sample *t, uint64_t end);
/* Takes those with end <= released out, in order, into out (cap); their tops stay until the next
 * push. Returns their number. */
uint32_t logprob_queue_take(struct logprob_queue *q, uint64_t released, struct token_sample *out);

#endif
