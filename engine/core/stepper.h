/* Drives a device with the scheduler's steps: keeps as many in flight as the scheduler's depth
 * allows, gives masks as soon as the tokens that they depend on are known, and feeds results back.
 * Never blocks but in the device. Belongs to the scheduler's thread. */
#ifndef ENGINE_CORE_STEPPER_H
#define ENGINE_CORE_STEPPER_H

#include <stdbool.h>

#include "base/status.h"
#include "engine/core/device.h"
#include "engine/core/scheduler.h"

struct stepper {
    struct scheduler *scheduler;        /* borrowed */
    struct device *device;              /* borrowed */
    struct step_output output;          /* arrays of max_rows */
    int64_t (*now_us)(void *clock_arg); /* the monotonic clock; a simulation gives its own */
    void *clock_arg;
    uint32_t n_words;       /* of a mask */
    struct row_mask *masks; /* (max_sequences) */
    uint32_t *bits;         /* (max_sequences, n_words) */
};

/* As the device was opened. */
struct stepper_limits {
    uint32_t max_rows, max_sequences, n_vocab;
};

MUST_CHECK enum status stepper_init(struct stepper *t, struct scheduler *scheduler,
                                    struct device *device, const struct stepper_limits *limits);
void stepper_dispose(struct stepper *t);

/* Submits what can be submitted, then completes the oldest step in flight. False: there was none.
 */
bool stepper_turn(struct stepper *t);

#endif
