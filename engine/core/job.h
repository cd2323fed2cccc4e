/* A job of the engine process: one request, with a sequence for each of its choices. This is its
 * memory, and what it counts as; jobs.c moves it. Belongs to the scheduler's thread. */
#ifndef ENGINE_CORE_JOB_H
#define ENGINE_CORE_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/core/cache_key.h"
#include "engine/core/logprob_queue.h"
#include "engine/core/sequence.h"
#include "engine/text/detok.h"
#include "engine/text/tokenizer.h"
#include "engine/wire/wire.h"

struct conn;
struct job;

struct job_choice {
    struct sequence sequence; /* sampling.choice is its index */
    struct job *job;
    struct detok *detok;
    struct logprob_queue logprobs;
    bool is_finished; /* an entry with its finish was written */
};

struct job {
    struct conn *conn;       /* NULL: has gone, was never taken, or the end was told */
    struct job *prev, *next; /* of the connection */
    struct conn *claimant;   /* a later gateway that waits for its end; NULL */
    struct job *next_failed; /* of jobs.failed */
    uint64_t id;
    struct id request;
    struct cache_domain cache; /* of the KV pages of all choices */
    bool ignore_eos;
    int32_t *end_ids;        /* stop ids, then the model's own unless they are ignored */
    uint32_t n_stop_ids;     /* the first of end_ids */
    struct logit_bias *bias; /* as sampling.bias of all choices */

    uint32_t n_choices, n_submitted, n_ended;
    uint32_t n_references;     /* to its memory: sequences, and who is working on it */
    uint32_t output_tokens;    /* of all choices */
    enum status status;        /* what went wrong first; ST_OK */
    enum engine_finish finish; /* LENGTH where any choice ended so */
    bool not_finite;           /* some choice's logits were NaN or infinite */
    bool is_ending;            /* all its choices are being cancelled */

    struct job_choice choices[]; /* (n_choices); the first leads: the others wait for its prompt */
};

struct job_template {
    const struct tokenizer *tokenizer;
    const struct token_ids *model_ends; /* its end-of-generation ids */
    const struct cache_domain *cache;   /* all but the salt, which the frame has */
    int64_t now_us;
    bool held;
};

/* Everything of the frame is copied but the prompt, which the scheduler copies. ST_INVALID: a stop
 * string that no detokenizer takes; ST_NO_MEMORY. It has one reference, the caller's. */
MUST_CHECK enum status job_new(const struct job_template *t, const struct wire_submit *v,
                               struct job **out);
void job_free(struct job *job);

static inline struct job_choice *job_choice_of(struct sequence *s)
{
    return CONTAINER_OF(s, struct job_choice, sequence);
}

/* A token that ends the choice instead of giving text. */
bool job_is_end_id(const struct job *job, const struct tokenizer *t, int32_t id);

/* Never ran: no choice of it was admitted. */
static inline bool job_is_waiting(const struct job *job)
{
    return job->choices[0].sequence.state == SEQUENCE_WAITING;
}

/* Counts of all its choices together for an entry; the prompt counts once, when its prefill is
 * complete. */
void job_fill_entry(const struct job *job, struct wire_step_entry *out);
/* Its end: nothing is counted where a choice's logits were not finite, or where it failed before
 * its first token. */
void job_fill_final(const struct job *job, struct wire_final *out);

#endif
