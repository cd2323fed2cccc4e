/* The scheduler's own state, shared by scheduler.c (the life of a sequence) and batch.c (the
 * building of a step). Nobody else includes this. */
#ifndef ENGINE_CORE_SCHEDULER_STATE_H
#define ENGINE_CORE_SCHEDULER_STATE_H

#include "engine/core/scheduler.h"

struct scheduler {
    struct scheduler_config cfg;
    struct scheduler_events events;
    void *arg;
    struct pages pages;
    uint32_t limit; /* most tokens of a sequence: what context and pages allow */

    struct sequence waiting;   /* ring, by turn (round, then arrival) */
    struct sequence preempted; /* ring, by age */
    struct sequence running;   /* ring, by age */
    uint32_t n_waiting, n_preempted, n_running;
    uint64_t round; /* of the sequence admitted last */
    uint64_t next_age;

    uint32_t *free_slots; /* stack */
    uint32_t n_free_slots;

    struct scheduled_step steps[SCHEDULER_DEPTH_MAX];
    uint32_t first_step, n_steps; /* those in flight, a ring */
    bool drain;                   /* a preemption waits until nothing is in flight */

    uint32_t rows_max;
    uint64_t n_built, prompt_tokens, output_tokens, preemptions;
};

/* waiting or preempted -> running; needs a free slot. */
void scheduler_admit(struct scheduler *s, struct sequence *q, int64_t now_us);
/* running -> preempted; nothing is in flight. */
void scheduler_preempt(struct scheduler *s, struct sequence *q);

#endif
