/* Masks of one ticket of the CPU device, by the step's sequences. Their memory is
 * there from the start. The device's owner calls; the compute threads read. */
#ifndef ENGINE_CPU_MASKS_H
#define ENGINE_CPU_MASKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/device.h"

struct masks {
    uint32_t max_sequences;
    size_t words;   /* of one mask */
    uint32_t *bits; /* (max_sequences, words) */
    bool *given;    /* (max_sequences) */
};

MUST_CHECK enum status masks_init(struct masks *m, uint32_t max_sequences, uint32_t n_vocab);
size_t masks_bytes(uint32_t max_sequences, uint32_t n_vocab); /* what init allocates */
void masks_dispose(struct masks *m);                          /* zeroed is fine */
/* For the next ticket. */
void masks_clear(struct masks *m);
/* Copies n masks, all or none. ST_INVALID: a row that doesn't sample for a masked sequence, or a
 * second mask of one. */
MUST_CHECK enum status masks_add(struct masks *m, const struct device_step *step,
                                 const struct row_mask *masks, uint32_t n);
/* Whether every row that samples for a masked sequence has its mask. */
bool masks_are_complete(const struct masks *m, const struct device_step *step);
/* Mask of the step's sequence; NULL where it isn't masked. */
const uint32_t *masks_of(const struct masks *m, const struct device_step *step, uint32_t sequence);

#endif
