/* The seam between the engine's scheduler and the mathematics. One device per engine process; the
 * scheduler's thread owns it and makes every call.
 *
 * A step is one mixed batch: rows of prefill chunks and of decodes, in one flat description without
 * pointers into itself (offsets and indices only), so that it can be copied to pinned memory or
 * sent to another rank. `submit` hands a step over and returns a ticket; `complete` waits for it
 * and gives the sampled ids. A device may run steps asynchronously: an input row may say "the id
 * that row r of ticket t sampled" instead of a literal, so that the host prepares step t+1 while t
 * runs. Sampling state lives in persistent slots. The CPU device computes in `complete`.
 *
 * Invariance (design section 6): the logits and ids of a sequence depend on its own tokens, its
 * slot's sampling and the device's mode only: never on the other rows, on how its prompt was
 * chunked, or on the number of threads. */
#ifndef ENGINE_CORE_DEVICE_H
#define ENGINE_CORE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/sampler.h"
#include "engine/model/model.h"

#define KV_PAGE_TOKENS 16

enum device_mode {
    DEVICE_FAST, /* quantized activations, F16 or 8-bit KV; the default */
    DEVICE_EXACT /* float activations, F32 KV: the reference */
};

/* How keys and values are kept. Never by page: a token's depend on itself alone. */
enum kv_type {
    KV_AUTO, /* the mode's own: F16 of fast, F32 of exact, which takes no other */
    KV_F16,
    KV_Q8 /* 8 bits, one float scale for each (token, KV head), of K and of V */
};

struct device_config {
    const struct model *model; /* outlives the device */
    enum device_mode mode;
    enum kv_type kv_type;
    const char *isa;    /* "auto", "scalar", "avx2", "avx512"; one the machine lacks is refused */
    unsigned n_threads; /* 0: all cores (all but one where there are more than two) */
    uint32_t max_rows;  /* most input rows (tokens) in a step */
    uint32_t max_sequences; /* slots; most sequences in a step */
    uint32_t max_context;   /* most tokens in a sequence */
    uint32_t n_pages;       /* KV pages; 0: as many as kv_bytes holds */
    size_t kv_bytes;
};

struct device_plan {
    size_t weight_bytes;  /* mapped, and repacked copies */
    size_t kv_page_bytes; /* of one page, all layers, K and V */
    size_t scratch_bytes;
    uint32_t n_pages;
};

/* Where a row's input id comes from. */
#define ROW_LITERAL 0u /* row.id is the token */
struct step_row {
    int32_t id; /* literal token id when ticket is ROW_LITERAL, else row index of that ticket */
    uint64_t ticket;   /* ROW_LITERAL or an earlier submit's ticket, not yet more than one behind */
    uint32_t position; /* absolute, from 0 */
    uint32_t sequence; /* index into step.sequences */
    bool want;         /* compute logits of this row and sample from them */
};

struct step_sequence {
    uint32_t slot;         /* < max_sequences; sampling set by slot_set */
    uint32_t first_page;   /* index into step.pages of this sequence's page table */
    uint32_t n_pages;      /* covers positions [0, 16 * n_pages) */
    uint32_t output_index; /* output index of the token that its `want` row samples */
};

/* Rows of one sequence are adjacent and ascending in position; every earlier position of the
 * sequence was computed by an earlier step into the same pages. Arrays are owned by the scheduler
 * and must stay untouched until `complete`. */
struct device_step {
    uint32_t n_rows, n_sequences, n_pages;
    struct step_row *rows;           /* n_rows <= max_rows */
    struct step_sequence *sequences; /* n_sequences <= max_sequences */
    uint32_t *pages;                 /* n_pages physical page numbers */
    bool want_logits;                /* keep logits of `want` rows readable by `logits` (score) */
};

struct step_result {
    uint32_t row;       /* index of a `want` row, ascending over the results */
    int32_t id;         /* sampled; undefined unless status is ST_OK */
    enum status status; /* ST_INTERNAL: NaN or infinity in its logits */
};

struct device; /* begins with its ops: `struct device { const struct device_ops *ops; }` */

struct device_ops {
    const char *name; /* "cpu" */
    /* Memory that the config would need; n_pages resolved from kv_bytes. No allocation. */
    enum status (*plan)(const struct device_config *cfg, struct device_plan *out,
                        struct reason *why);
    enum status (*open)(const struct device_config *cfg, struct device **out, struct reason *why);
    void (*close)(struct device *d);
    /* "cpu avx2 fast 2 threads": static for the device's life. Printed at start; part of
     * system_fingerprint. */
    const char *(*describe)(const struct device *d);
    void (*slot_set)(struct device *d, uint32_t slot, const struct sampling *s);
    enum status (*submit)(struct device *d, const struct device_step *step, uint64_t *ticket);
    /* Waits for the ticket; writes one result per `want` row into out (room for all), their number
     * to *n. A device failure is ST_INTERNAL: the step's sequences fail. */
    enum status (*complete)(struct device *d, uint64_t ticket, struct step_result *out,
                            uint32_t *n);
    /* After complete of a step with want_logits: row's raw logits (n_vocab), until the next submit.
     */
    const float *(*logits)(const struct device *d, uint32_t row);
    /* Copies KV pages (copy on write, preemption): n pairs, before the next submit. */
    enum status (*copy_pages)(struct device *d, const uint32_t *from, const uint32_t *to,
                              uint32_t n);
    /* The grammar mask seam (`constrain`) and adapters join with the issues that need them. */
};

struct device {
    const struct device_ops *ops;
};

#endif
