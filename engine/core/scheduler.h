/* Which rows the next step computes. Pure: no device, no socket, no clock; time is passed in.
 *
 * Continuous batching: a sequence joins and leaves at any step. A step carries one row for every
 * decoding sequence, then chunks of prompts, under a budget in predicted time, so that a long
 * prompt doesn't hold up the others. Tenants share the service by virtual token counters, and so do
 * the projects of a tenant; priority classes stand above that, and waiting lifts a request through
 * them. KV pages are taken as positions need them, and full ones are shared through the prefix
 * cache. When slots or pages run out, cached pages are evicted first, then a sequence gives its
 * place back and is recomputed later (its output stays); the oldest of the highest class is never
 * preempted, so it always gets on. docs/scheduling.md has the rules and their bounds.
 *
 * Up to `depth` steps are in flight: step t+1 is built before the results of t are known and names
 * the tokens of t by ticket and row. What is in flight is not preempted.
 *
 * All calls on one thread. Callbacks come from inside scheduler_build (requests that waited too
 * long), _apply, _fail, _cancel and _masks, and must not call back into the scheduler. */
#ifndef ENGINE_CORE_SCHEDULER_H
#define ENGINE_CORE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/cost.h"
#include "engine/core/device.h"
#include "engine/core/sequence.h"
#include "engine/engine.h"

#define SCHEDULER_DEPTH_MAX 2 /* a row may name a ticket at most one behind (device.h) */

struct scheduler;

struct scheduler_config {
    uint32_t max_sequences; /* running at once */
    uint32_t prefill_rows;  /* most prompt rows in a step */
    uint32_t max_context;   /* tokens of a sequence, prompt and output */
    uint32_t n_pages;
    uint32_t queue_max;        /* waiting at once, preempted ones included */
    uint32_t tenant_queue_max; /* of one tenant; 0: queue_max alone */
    uint32_t depth;            /* steps in flight: 1, or 2 for a device that runs by itself */
    int64_t step_us;           /* a step's predicted time; 0: only prefill_rows bounds it */
    struct cost cost;          /* what steps take on this device, to begin with; may be set later */
    int64_t age_up_us;         /* so long a wait lifts a request by a class; 0: never */
    /* False: only choices of one prompt share its pages (sequence.leader). */
    bool prefix_cache;
    uint32_t prefix_cache_permille; /* most cached pages of a tenant, of all pages */
};

/* Rows of the largest step: the device's max_rows. */
static inline uint32_t scheduler_max_rows(const struct scheduler_config *cfg)
{
    return cfg->max_sequences + cfg->prefill_rows;
}

struct scheduler_events {
    /* A token of the output, in order. `last`: the sequence ends with it by length. True: it ends
     * here, as a stop. */
    bool (*on_token)(void *arg, struct sequence *s, const struct token_sample *t, bool last);
    /* With want_prompt_logprobs: of prompt token `position` (1 and up), in order, each once. */
    void (*on_score)(void *arg, struct sequence *s, uint32_t position,
                     const struct token_sample *t);
    /* A masked sequence's next token: fills the allowed ids into bits ((n_vocab + 31) / 32 words,
     * all zero). */
    void (*on_mask)(void *arg, struct sequence *s, uint32_t *bits);
    /* Exactly once for each submitted sequence. finish is NONE unless status is ST_OK. */
    void (*on_end)(void *arg, struct sequence *s, enum status status, enum engine_finish finish);
    /* After on_end, when no step refers to it any more: the memory is the caller's again. */
    void (*on_release)(void *arg, struct sequence *s);
};

struct scheduler_stats {
    uint32_t running, waiting; /* preempted ones wait */
    uint32_t pages_used, pages_total;
    uint32_t rows_max; /* most sequences in one step */
    uint64_t steps, prompt_tokens, output_tokens, preemptions;
    uint64_t exchanged_rows; /* computed ones that gave way for the balance of tenants */
    uint64_t prefix_query_tokens, prefix_hit_tokens; /* of prompts at their first admission */
    uint64_t not_finite; /* sequences that ended because of a NaN or an infinity */
};

struct scheduled_entry {
    struct sequence *sequence;
    uint32_t n_end;             /* positions computed when this step is done */
    uint32_t first_row, n_rows; /* in step.rows */
    bool samples;               /* its last row is a ROW_SAMPLE */
};

/* A step and whose it is; the scheduler's, until it was applied or failed. */
struct scheduled_step {
    struct device_step step;
    uint64_t ticket;
    int64_t built_us;
    uint64_t predicted_ns;   /* by cfg.cost; 0: it isn't known any more */
    bool is_constrained;     /* the stepper's: its masks were given, */
    enum status constrained; /* and how the device took them */
    uint32_t n_entries;      /* as step.sequences */
    struct scheduled_entry *entries;
};

MUST_CHECK enum status scheduler_new(const struct scheduler_config *cfg,
                                     const struct scheduler_events *events, void *arg,
                                     struct scheduler **out);
/* No sequence is left and no step in flight. NULL is fine. */
void scheduler_free(struct scheduler *s);
/* Of the steps that are built from now on; what the pace of earlier ones was is forgotten. */
void scheduler_set_cost(struct scheduler *s, const struct cost *cost);

/* The prompt is copied. ST_TOO_LONG: can never fit; ST_OVERLOADED: the queue, or the tenant's part
 * of it, is full; ST_NO_MEMORY. A leader was submitted before and its on_end has not come. On
 * failure the sequence is not the scheduler's and no callback comes. */
MUST_CHECK enum status scheduler_submit(struct scheduler *s, struct sequence *q,
                                        const int32_t *prompt, uint32_t n_prompt, int64_t now_us);
/* Ends it now with `status`; nothing of it is computed or counted afterwards. */
void scheduler_cancel(struct scheduler *s, struct sequence *q, enum status status, int64_t now_us);

/* The next step, or NULL: nothing to do, or not before a step in flight is done. The caller tells
 * the device the sampling of entries whose slot_is_new (and clears it), submits, and answers with
 * scheduler_submitted or scheduler_fail; scheduler_fail_entry where the device refuses a slot. */
struct scheduled_step *scheduler_build(struct scheduler *s, int64_t now_us);
void scheduler_submitted(struct scheduler *s, struct scheduled_step *step, uint64_t ticket);
/* The oldest step in flight; NULL when there is none. */
struct scheduled_step *scheduler_oldest(struct scheduler *s);
/* The masks of its masked sequences, for device_ops.constrain: asks events.on_mask. The steps
 * before it were applied. masks has room for max_sequences, bits for max_sequences * n_words.
 * Returns their number. */
uint32_t scheduler_masks(struct scheduler *s, const struct scheduled_step *step, uint32_t n_words,
                         struct row_mask *masks, uint32_t *bits);
/* Its results, one per row that wants something, ascending. Results that don't match the step count
 * as a failure of the device. */
void scheduler_apply(struct scheduler *s, struct scheduled_step *step,
                     const struct step_output *output, int64_t now_us);
/* The device failed it: its sequences end with ST_INTERNAL. */
void scheduler_fail(struct scheduler *s, struct scheduled_step *step, int64_t now_us);
/* Before it was submitted: the device doesn't take this entry's sequence, which ends with
 * ST_INTERNAL and leaves the step; those after it move down. False: it was the last, and the step
 * is over. */
MUST_CHECK bool scheduler_fail_entry(struct scheduler *s, struct scheduled_step *step, uint32_t at,
                                     int64_t now_us);

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *out);

/* When a request of the tenant that is refused now might be taken: what waits before it at the
 * predicted speed. 1000 to 60000. */
int64_t scheduler_retry_after_ms(const struct scheduler *s, uint64_t tenant);

/* NULL: pages, counts and cache agree with the sequences; else what doesn't (static text). For
 * tests: looks at everything. */
const char *scheduler_check(const struct scheduler *s);

#endif
