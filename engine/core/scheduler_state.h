/* The scheduler's own state and what its parts call of each other:
 *
 *   scheduler.c  its memory, how requests come, and steps in flight
 *   life.c       the life of a sequence
 *   forecast.c   how long what waits will take
 *   room.c       who gives way when slots or pages are short
 *   admit.c      from waiting to running: the cache's pages, and room for the rest
 *   batch.c      the building of a step
 *   results.c    what came of it
 *   books.c      whether all counts agree
 *
 * Nobody else includes this. */
#ifndef ENGINE_CORE_SCHEDULER_STATE_H
#define ENGINE_CORE_SCHEDULER_STATE_H

#include "engine/core/fair.h"
#include "engine/core/pages.h"
#include "engine/core/prefix_cache.h"
#include "engine/core/queue.h"
#include "engine/core/scheduler.h"

/* Of the step being built: what is left for prompts. */
struct budget {
    uint32_t rows;
    int64_t ns; /* may fall below 0: decodes always have their rows */
};

struct scheduler {
    struct scheduler_config cfg;
    struct scheduler_events events;
    void *arg;
    struct pages pages;
    struct prefix_cache *cache;
    uint32_t limit; /* most tokens of a sequence: what context and pages allow */

    struct queue queue;
    struct sequence_list running; /* by age */
    uint32_t n_running;
    uint64_t next_arrival, next_age;

    uint32_t *free_slots; /* stack */
    uint32_t n_free_slots;

    struct scheduled_step steps[SCHEDULER_DEPTH_MAX];
    uint32_t first_step, n_steps; /* those in flight, a ring */
    bool drain;                   /* a preemption waits until nothing is in flight */

    struct cost cost; /* cfg.cost at the pace of the steps so far */
    struct pace pace;
    int64_t left_us; /* when the last step was done */
    int64_t now_us;  /* of the step being built */
    struct budget budget;
    struct sequence *champion; /* the oldest of the best class; valid while a step is built */
    /* The waiting sequence (its arrival) that pages were short for last, and how many it takes:
     * while nobody gives way, another try would only hash its prompt again. */
    uint64_t blocked_arrival;
    uint32_t blocked_need;

    uint32_t rows_max;
    uint64_t mean_output_q8; /* of requests that ended well, in 256ths of a token */
    uint64_t n_built, prompt_tokens, output_tokens, preemptions, exchanged_rows;
    uint64_t prefix_query_tokens, prefix_hit_tokens, not_finite;
};

/* Preempted ones included. */
static inline uint32_t scheduler_n_waiting(const struct scheduler *s)
{
    return s->queue.n_waiting + s->queue.n_preempted;
}

/* ---- life.c ---- */

/* state: SEQUENCE_WAITING or SEQUENCE_PREEMPTED. */
void scheduler_enter_queue(struct scheduler *s, struct sequence *q, enum sequence_state state,
                           int64_t now_us);
/* running -> preempted; it is in no step in flight. */
void scheduler_preempt(struct scheduler *s, struct sequence *q);
/* Its end, reported. Pages and slot stay until the steps in flight that name them are done. */
void scheduler_end(struct scheduler *s, struct sequence *q, enum status status,
                   enum engine_finish finish, int64_t now_us);
/* A step that carried an ended sequence is done. */
void scheduler_step_left(struct scheduler *s, struct sequence *q);
/* n more pages of its table, which can be had (pages_available). */
void scheduler_take_pages(struct scheduler *s, struct sequence *q, uint32_t n);
void scheduler_drop_pages(struct scheduler *s, struct sequence *q);

/* ---- forecast.c ---- */

void forecast_init(struct scheduler *s);
/* A request ended well with so much output. */
void forecast_learn(struct scheduler *s, uint32_t n_output);
/* From its place in the queue to its end, if it were alone with a full batch. */
uint64_t forecast_ns(const struct scheduler *s, const struct sequence *q);

/* ---- room.c ---- */

enum resource { RESOURCE_SLOTS, RESOURCE_PAGES };

/* The oldest, by first admission, of the best class among those that run or were preempted. */
struct sequence *room_champion(const struct scheduler *s, int64_t now_us);
/* Until a slot is free, or `n` pages can be had, for q, which waits: others give way as the rules
 * allow. False: not now. */
bool room_for_slot(struct scheduler *s, const struct sequence *q);
bool room_for_pages(struct scheduler *s, const struct sequence *q, uint32_t n);
/* Whether they would succeed; nothing is done. */
bool room_may_have_slot(const struct scheduler *s, const struct sequence *q);
bool room_may_have_pages(const struct scheduler *s, const struct sequence *q, uint32_t n);
/* room_for_pages for one page of q, which runs. */
bool room_to_grow(struct scheduler *s, const struct sequence *q);

/* ---- admit.c ---- */

/* Whom to admit next: a preempted champion, else the queue's next. NULL: none. */
struct sequence *admit_candidate(struct scheduler *s, int64_t now_us);
/* Gives it a slot, and pages for all tokens that it has. False: there is no room for it now. */
bool admit(struct scheduler *s, struct sequence *q, int64_t now_us);

#endif
