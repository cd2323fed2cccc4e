/* Measures what steps take on a device, before the first that serves: a few steps on pages and a
 * slot that nobody uses yet. Takes about CALIBRATE_US on a device that is fast enough, and on a
 * slow one some steps of few rows. */
#ifndef ENGINE_CORE_CALIBRATE_H
#define ENGINE_CORE_CALIBRATE_H

#include <stdint.h>

#include "base/status.h"
#include "engine/core/cost.h"
#include "engine/core/device.h"

#define CALIBRATE_US 400000

/* Times of four steps in a row, several times over: the machine may be busy with something else for
 * some of them. */
#define CALIBRATE_ROUNDS 9
enum calibrate_step {
    CALIBRATE_ONE,     /* a row at the beginning */
    CALIBRATE_SAMPLED, /* the same, with logits */
    CALIBRATE_CHUNK,   /* n_rows at the beginning */
    CALIBRATE_DEEP,    /* n_rows from `position` on */
    CALIBRATE_STEPS
};
struct calibrate_times {
    uint32_t n_rounds, n_rows, position; /* n_rows 1: a step can't have two; position 0: not deep */
    int64_t ns[CALIBRATE_STEPS][CALIBRATE_ROUNDS];
};

/* The coefficients, from the medians. What can't be is taken for a fault of the measurement: a row
 * always costs something, and a token that it attends to far less than the row. */
struct cost calibrate_fit(const struct calibrate_times *t);

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
