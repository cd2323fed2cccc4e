/* Paged KV memory of the CPU device and attention over it.
 *
 * A page holds KV_TOKENS tokens of one sequence for all layers; within it, a (layer, KV head) is
 * contiguous: K as (head_dim, 16), so that scores come out a token per lane, then V as
 * (16, head_pad); the type's scales, if any, come before each. Attention works in splits of 256
 * tokens by absolute position, each with its own maximum and sum, merged in ascending order: so a
 * row's result depends on its position and the page contents only. Belongs to the device; items of
 * the pool write disjoint places. */
#ifndef ENGINE_CPU_ATTENTION_H
#define ENGINE_CPU_ATTENTION_H

#include "base/status.h"
#include "engine/core/device.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/threads.h"

#define SPLIT_TOKENS 256u
#define UNIT_ROWS    4u /* adjacent rows of a sequence that one pool item computes */

struct kv {
    const struct kv_kernels *kernels;
    uint8_t *memory; /* (n_pages, page_bytes) */
    size_t page_bytes;
    size_t part_bytes; /* K of one (page, layer, head) */
    size_t head_bytes; /* K and V of it */
    uint32_t n_pages;
    uint32_t n_kv_heads, head_dim, head_pad;
};

/* What keeps KV as cfg's mode and type ask; NULL: the mode has no such type. */
const struct kv_kernels *kv_kernels_of(const struct kernels *kernels,
                                       const struct device_config *cfg);
/* Bytes of a page for this shape. */
size_t kv_page_bytes(const struct model_shape *shape, const struct kv_kernels *kernels);
MUST_CHECK enum status kv_open(struct kv *kv, const struct model_shape *shape,
                               const struct kv_kernels *kernels, uint32_t n_pages,
                               struct reason *why);
void kv_close(struct kv *kv); /* also after a failed open */
/* K (V follows it at part_bytes) of a page, layer and head. */
uint8_t *kv_part(const struct kv *kv, uint32_t page, uint32_t layer, uint32_t head);

/* Adjacent rows of one sequence, at most UNIT_ROWS. */
struct attention_unit {
    uint32_t first_row, n_rows;
};

struct attention {
    const struct kernels *kernels;
    const struct kv *kv;
    const struct device_step *step;
    uint32_t layer;
    uint32_t n_heads;
    uint32_t window; /* a row sees so many tokens, itself among them; 0: all */
    float cap;       /* on scores; 0: none */
    const float *q;  /* (n_rows, ldq): heads, rotated and scaled */
    size_t ldq;
    float *out; /* (n_rows, ldo): heads */
    size_t ldo;
    const struct attention_unit *units;
    uint32_t n_units;
    float **scratch; /* per thread: attention_scratch_floats */
};

size_t attention_scratch_floats(const struct model_shape *shape);
/* Fills units (room for step->n_rows) and returns their number. */
uint32_t attention_units(const struct device_step *step, struct attention_unit *units);
/* All units and KV heads on the pool. */
void attention_run(struct attention *a, struct pool *pool);

#endif
