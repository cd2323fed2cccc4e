/* Measures what steps take on a device, before the first that serves: a few steps on pages and a
 * slot that nobody uses yet. Takes about CALIBRATE_US on a device that is fast enough, and on a
 * slow one some steps of a single row. */
#ifndef ENGINE_CORE_CALIBRATE_H
#define ENGINE_CORE_CALIBRATE_H

#include <stdint.h>

#include "base/status.h"
#include "engine/core/cost.h"
#include "engine/core/device.h"

#define CALIBRATE_US 400000

/* As the device was opened. */
struct calibrate_limits {
    uint32_t max_rows, max_context, n_pages;
    uint32_t max_sequences;
    int64_t step_us; /* the scheduler's */
};

/* ST_NO_MEMORY, or what the device said: then *out has a step's time pay for a full batch of
 * decodes and a page of prompt, which is little, until the pace of real steps tells more. */
MUST_CHECK enum status calibrate(struct device *d, const struct calibrate_limits *limits,
                                 struct cost *out);

#endif
