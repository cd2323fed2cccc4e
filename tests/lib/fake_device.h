/* A device without mathematics, for tests of what stands above it. A sampled id is a hash of all
 * tokens of its sequence, read through the page table from pages that hold what was really put
 * there, of its adapter, of its slot's seed and of the output index, moved to the next one that the
 * mask allows: a wrong page, row, ticket, slot, adapter or index gives other ids. A slot's history
 * is what slot_set said and what it sampled since, and must agree with the pages.
 *
 * It works in `complete`, so ids of a step are known one step late when two are in flight. Time is
 * simulated: a step begins when it was submitted and the one before it is done, and takes what the
 * script says. It asserts the contract of core/device.h as it goes.
 *
 * device_ops.open has no argument of its own, so the script is a global: one fake device at a time.
 */
#ifndef TESTS_LIB_FAKE_DEVICE_H
#define TESTS_LIB_FAKE_DEVICE_H

#include <stdint.h>

#include "engine/core/device.h"

#define FAKE_DEVICE_VOCAB 1000 /* without a model */

struct fake_device_script {
    uint64_t fail_complete_every; /* every n-th completed step fails; 0: never */
    uint64_t fail_submit_every;
    uint64_t nan_seed; /* sequences with this seed get NaN after nan_after outputs; 0: none */
    uint32_t nan_after, nan_choice; /* of that choice index alone */
    uint64_t refuse_slot_seed;      /* slot_set fails for sequences with this seed; 0: none */
    /* Simulated time; all 0: steps take none. */
    int64_t step_us;                        /* of every step */
    int64_t row_us, attended_ns, logits_us; /* on top, as core/cost.h has them */
    /* Called in complete, before a step is worked on: where a test acts in the middle of a job. */
    void (*on_step)(void *arg, const struct device_step *step);
    void *arg;
};
extern struct fake_device_script fake_device_script;
extern const struct device_ops fake_device_ops;

/* What a sequence samples at output_index after `tokens`, without an adapter and a mask. seed: the
 * request's, and the choice index added to it. */
int32_t fake_device_pick(const int32_t *tokens, uint32_t n, uint64_t seed, uint32_t output_index,
                         uint32_t n_vocab);
/* The same with an adapter; its slot + 1. */
int32_t fake_device_pick_adapted(const int32_t *tokens, uint32_t n, uint32_t adapter, uint64_t seed,
                                 uint32_t output_index, uint32_t n_vocab);
/* The first id from `id` on, cyclic, that the mask allows; -1: it allows none. */
int32_t fake_device_allowed(int32_t id, const uint32_t *bits, uint32_t n_vocab);
/* The score of `target` after `tokens`; also a sampled id's log-probability. The top ones are the
 * lowest ids. */
float fake_device_score(const int32_t *tokens, uint32_t n, int32_t target);
/* How often a row named a ticket instead of a literal id. */
uint64_t fake_device_ticket_rows(const struct device *d);
/* Rows computed, steps that failed included. */
uint64_t fake_device_rows(const struct device *d);
/* Its clock: the arg is the device. Complete moves it to the end of the step. */
int64_t fake_device_now_us(void *device);
void fake_device_set_time(struct device *d, int64_t us);

#endif
