/* One request inside the scheduler: its tokens, its KV pages and how far they are computed. The
 * caller embeds it in its own job and keeps it alive until the scheduler's on_release. Belongs to
 * the scheduler's thread. */
#ifndef ENGINE_CORE_SEQUENCE_H
#define ENGINE_CORE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/device.h"
#include "engine/core/prefix_cache.h"
#include "engine/core/sampler.h"

enum sequence_state {
    SEQUENCE_WAITING,   /* never admitted */
    SEQUENCE_RUNNING,   /* has a slot */
    SEQUENCE_PREEMPTED, /* was running; gave its place back, will be recomputed */
    SEQUENCE_ENDED      /* its end was reported; steps in flight may still carry its rows */
};

#define PRIORITY_CLASSES 3 /* 0 first: interactive, ordinary, whenever there is room */

struct fair_node;

struct sequence_list {
    struct sequence *first, *last;
};

struct sequence {
    /* The caller's, before scheduler_submit. */
    uint64_t tenant, project;  /* opaque */
    uint32_t weight;           /* of the tenant's share; 1000 is the ordinary one */
    uint32_t priority;         /* class, below PRIORITY_CLASSES */
    int64_t queue_deadline_us; /* still waiting then: it ends with ST_TIMEOUT; 0: waits for ever */
    uint32_t max_tokens;       /* of output; 0: the prompt is computed and nothing sampled */
    struct sampling sampling;  /* its lists live until on_release */
    const struct cache_domain
        *cache;       /* of its KV pages; lives until on_release; NULL: not shared */
    uint32_t adapter; /* as step_sequence.adapter */
    bool masked;      /* every token is sampled under a mask that events.on_mask gives */
    /* A further choice of the same prompt: not admitted before the leader's prompt is computed, so
     * that it finds the prompt's pages; where the leader ends before that, it ends alike. Submitted
     * before, and not ended yet. NULL: none. */
    struct sequence *leader;

    /* The caller's, at any time: while true it gets no rows, since nobody takes its output. */
    bool held;

    /* The scheduler's. */
    enum sequence_state state;
    struct sequence *prev, *next; /* in running or in its project's waiting ones */
    struct fair_node *project_node;
    uint64_t arrival; /* order of submission */
    uint64_t age;     /* order of first admission: lower is older; UINT64_MAX: none yet */
    uint32_t level;   /* what its class counted as, after aging, at its last admission, or that of
                         a worse one that was admitted since */
    int64_t waiting_since_us; /* as if all its waits, with those before a preemption, were one */
    int64_t waited_us;        /* of those that are over */
    uint32_t n_followers;     /* waiting sequences that name it as their leader */

    int32_t *tokens; /* prompt, then output; room for `limit` */
    uint32_t n_prompt, n_tokens, limit;
    uint32_t n_computed; /* positions in KV, or in a step in flight that puts them there */
    uint32_t n_reached;  /* the most that n_computed has been: rows below it were computed before */
    uint32_t n_scored;   /* prompt rows whose scores were reported */
    uint32_t n_pending;  /* samples in flight: tokens that will be at n_tokens and after */
    uint64_t pending_ticket;
    uint32_t pending_row; /* where the last of them comes from */
    uint32_t n_in_flight; /* steps in flight with rows of this sequence */
    uint32_t n_planned;   /* rows in the step being built */
    uint64_t waiting_ns;  /* its part of its project's */

    uint32_t slot;
    bool slot_is_new; /* the device has not been told its sampling yet */
    uint32_t *pages;  /* its page table; room for `limit` positions */
    uint32_t n_pages;
    bool uses_cache; /* its pages are found in, and put into, the prefix cache */
    struct prefix_chain chain;
    struct cache_domain domain; /* where the cache is off: of this prompt's choices alone */

    bool not_finite; /* ended because its logits held a NaN or an infinity */
    bool prefilled;  /* the whole prompt was computed once: it counts, also after a preemption */
    uint32_t cached_tokens; /* of the prompt, found in the cache at the first admission */
    int64_t submitted_us, admitted_us, prefilled_us, ended_us;
};

static inline uint32_t sequence_n_output(const struct sequence *s)
{
    return s->n_tokens - s->n_prompt;
}

/* Rows that it could compute now: known tokens and the one in flight, never past its end. */
uint32_t sequence_rows_left(const struct sequence *s);
static inline uint32_t sequence_pages_for(uint32_t n_positions)
{
    return (n_positions + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}
/* Pages that its known tokens still need. */
uint32_t sequence_pages_missing(const struct sequence *s);

/* Its next rows sample or decode: nothing of prompt or of recomputed output is left but one row. */
static inline bool sequence_is_decoding(const struct sequence *s)
{
    return sequence_rows_left(s) == 1;
}

/* It needn't wait for its leader any more; nothing where it has none. */
void sequence_leave_leader(struct sequence *s);

/* `at` NULL: at the end. */
void sequence_insert_before(struct sequence_list *l, struct sequence *at, struct sequence *s);
void sequence_unlink(struct sequence_list *l, struct sequence *s);

#endif
