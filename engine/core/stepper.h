/* Drives a device with the scheduler's steps: keeps as many in flight as the scheduler's depth
 * allows and feeds results back. Never blocks but in the device. Belongs to the scheduler's
 * thread. */
#ifndef ENGINE_CORE_STEPPER_H
#define ENGINE_CORE_STEPPER_H

#include <stdbool.h>

#include "base/status.h"
#include "engine/core/device.h"
#include "engine/core/scheduler.h"

struct stepper {
    struct scheduler *scheduler; /* borrowed */
    struct device *device;       /* borrowed */
    struct step_output output;   /* arrays of max_rows */
};

MUST_CHECK enum status stepper_init(struct stepper *t, struct scheduler *scheduler,
                                    struct device *device, uint32_t max_rows);
void stepper_dispose(struct stepper *t);

/* Submits what can be submitted, then completes the oldest step in flight. False: there was none.
 */
bool stepper_turn(struct stepper *t);

#endif
