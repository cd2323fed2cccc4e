/* A device without mathematics, for tests of what stands above it. A sampled id is a hash of all
 * tokens of its sequence, read through the page table from pages that hold what was really put
 * there, of its slot's seed and of the output index: a wrong page, row, ticket, slot or index gives
 * other ids. It works in `complete`, so ids of a step are known one step late when two are in
 * flight. It asserts the contract of core/device.h as it goes.
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
    /* Called in complete, before a step is worked on: where a test acts in the middle of a job. */
    void (*on_step)(void *arg, const struct device_step *step);
    void *arg;
};
extern struct fake_device_script fake_device_script;
extern const struct device_ops fake_device_ops;

/* What a sequence samples at output_index after `tokens`. seed: the request's, and the choice index
 * added to it. */
int32_t fake_device_pick(const int32_t *tokens, uint32_t n, uint64_t seed, uint32_t output_index,
                         uint32_t n_vocab);
/* Log-probability of an id, whatever came before; the top ones are the lowest ids. */
float fake_device_logprob(int32_t id);
/* How often a row named a ticket instead of a literal id. */
uint64_t fake_device_ticket_rows(const struct device *d);

#endif
