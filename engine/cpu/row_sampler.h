/* From the last layer's rows to a step's results: logits, sampled ids, log-probabilities. Each row
 * is one thread's, and depends on its own logits, slot and mask only. The device's owner calls. */
#ifndef ENGINE_CPU_ROW_SAMPLER_H
#define ENGINE_CPU_ROW_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/device.h"
#include "engine/cpu/forward.h"
#include "engine/cpu/masks.h"
#include "engine/cpu/slots.h"
#include "engine/cpu/threads.h"

struct row_sampler {
    struct forward *forward; /* both outlive it */
    struct pool *pool;
    struct slots slots;
    struct row_room {
        struct sampler_scratch *scratch;
        float *adjusted; /* (n_vocab): the row's logits with bias, mask and penalties */
    } * rooms;           /* per thread */
    /* Of the running step: */
    const struct device_step *step;
    const struct masks *masks;
    struct step_output *output;
    uint32_t first_result; /* of the output pass */
    uint32_t first_logits; /* its place in forward->logits */
};

/* On failure row_sampler_dispose frees what there is. */
MUST_CHECK enum status row_sampler_init(struct row_sampler *r, struct forward *forward,
                                        struct pool *pool, const struct device_config *cfg);
/* What it allocates. */
size_t row_sampler_bytes(const struct device_config *cfg, unsigned n_threads);
void row_sampler_dispose(struct row_sampler *r); /* zeroed is fine; before the pool is closed */

/* After forward_run: fills output->results[i], whose row, id and status are set, for each of
 * output->n, and adds what was sampled to the slots' histories. rows: those of the results. Result
 * i's logits stay in row i of forward->logits if the step wants logits. */
void row_sampler_run(struct row_sampler *r, const struct device_step *step,
                     const struct masks *masks, const uint32_t *rows, struct step_output *output);

#endif
