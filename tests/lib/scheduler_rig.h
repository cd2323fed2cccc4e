/* The scheduler and its stepper on the fake device, a few sequences that the test submits by
 * itself, and what each of them must have given. For unit tests: failures are cmocka's. */
#ifndef TESTS_LIB_SCHEDULER_RIG_H
#define TESTS_LIB_SCHEDULER_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/scheduler.h"
#include "engine/core/stepper.h"
#include "tests/lib/fake_device.h"

#define RIG_SEQUENCES  40
#define RIG_PROMPT_MAX 60
#define RIG_OUTPUT_MAX 80
#define RIG_STOP_EVERY 29 /* ids divisible by it end a sequence, where it stops at all */

struct rig_sequence {
    struct sequence sequence; /* first: the callbacks cast */
    int32_t prompt[RIG_PROMPT_MAX];
    uint32_t n_prompt;
    bool stops;
    int32_t output[RIG_OUTPUT_MAX];
    uint32_t n_output;
    int n_ends, n_releases;
    enum status status;
    enum engine_finish finish;
    bool prefilled_at_end;
};

struct scheduler_rig {
    struct scheduler_config cfg;
    struct scheduler *scheduler;
    struct device *device;
    struct stepper stepper;
    struct rig_sequence jobs[RIG_SEQUENCES];
    uint32_t n_jobs;
    uint64_t random;
};

extern const struct scheduler_config scheduler_rig_roomy; /* everything has room */

/* Its clock is the device's, and begins at a second. */
void scheduler_rig_open(struct scheduler_rig *r, const struct scheduler_config *cfg);
/* Nothing is left behind, whatever happened. */
void scheduler_rig_close(struct scheduler_rig *r);

uint32_t scheduler_rig_random(struct scheduler_rig *r, uint32_t n); /* below n */
/* The next of jobs, with what the test has put into its sequence; the prompt is random. */
struct rig_sequence *scheduler_rig_submit(struct scheduler_rig *r, uint32_t n_prompt,
                                          uint32_t max_tokens, uint64_t tenant);
/* The same prompt and length; leader may be NULL. */
struct rig_sequence *scheduler_rig_submit_like(struct scheduler_rig *r,
                                               const struct rig_sequence *like,
                                               struct sequence *leader);
void scheduler_rig_run(struct scheduler_rig *r); /* until there is nothing to do */
/* Completed ones gave exactly what they give alone; the others a beginning of it. */
void scheduler_rig_check(const struct scheduler_rig *r, const struct rig_sequence *j);

#endif
