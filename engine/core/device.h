/* The seam between the engine's scheduler and the mathematics. One device per engine process; the
 * scheduler's thread owns it and makes every call.
 *
 * A step is one mixed batch: rows of prefill chunks and of decodes, in one flat description without
 * pointers into itself (offsets and indices only), so that it can be copied to pinned memory or
 * sent to another rank. `submit` hands a step over and returns a ticket; `complete` waits for it
 * and gives the sampled ids. A device may run steps asynchronously: an input row may say "the id
 * that row r of ticket t sampled" instead of a literal, so that the host prepares step t+1 while t
 * runs. Steps take effect in the order of their tickets: a page that a step in flight reads may be
 * written by the next one. Sampling state lives in persistent slots. The CPU device computes in
 * `complete`.
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

/* What a row's logits are for. */
enum row_want {
    ROW_NOTHING = 0,
    ROW_SAMPLE, /* sample the next token as the slot says */
    ROW_SCORE   /* log-probability of step_row.target as the next token, and the slot's top ones */
};

struct step_row {
    int32_t id; /* literal token id when ticket is ROW_LITERAL, else row index of that ticket */
    uint64_t ticket;   /* ROW_LITERAL or an earlier submit's ticket, not yet more than one behind */
    uint32_t position; /* absolute, from 0 */
    uint32_t sequence; /* index into step.sequences */
    uint8_t want;      /* enum row_want */
    int32_t target;    /* with ROW_SCORE */
};

struct step_sequence {
    uint32_t slot;         /* < max_sequences; sampling set by slot_set */
    uint32_t first_page;   /* index into step.pages of this sequence's page table */
    uint32_t n_pages;      /* covers positions [0, 16 * n_pages) */
    uint32_t output_index; /* output index of the token that its ROW_SAMPLE row samples */
    uint32_t adapter;      /* its slot + 1; 0: none */
    bool masked;           /* its ROW_SAMPLE row is sampled only after `constrain` gave its mask */
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
    uint32_t row;       /* index of a row that wants something, ascending over the results */
    int32_t id;         /* sampled, or the target; undefined unless status is ST_OK */
    enum status status; /* ST_INTERNAL: NaN or infinity in its logits; ST_NO_CHOICE: bias,
                           min_tokens or mask left nothing to sample */
    float logprob;      /* where the slot's sampling asks for it */
    uint32_t n_tops;
};

/* The caller's arrays that `complete` fills. */
struct step_output {
    uint32_t n;
    struct step_result *results; /* (max_rows) */
    struct token_logprob *tops;  /* (max_rows, TOP_LOGPROBS_MAX): result i's, descending */
};

/* Which tokens a row may sample. */
struct row_mask {
    uint32_t row;
    const uint32_t *bits; /* (n_vocab + 31) / 32 words, bit id % 32 of word id / 32: allowed */
};

struct adapter; /* its weights in host memory; opaque here */

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
    /* A sequence takes the slot: its sampling, and its tokens so far (n_prompt of prompt, then
     * output) for penalties. Lists and tokens are copied. What the device samples for the slot
     * later it adds itself. Comes before the first submit that names the slot for this sequence. A
     * failure is this sequence's alone. */
    enum status (*slot_set)(struct device *d, uint32_t slot, const struct sampling *s,
                            const int32_t *tokens, uint32_t n_prompt, uint32_t n_tokens);
    enum status (*submit)(struct device *d, const struct device_step *step, uint64_t *ticket);
    /* Masks of the step's masked sequences, all in one call, after submit and before complete: they
     * depend on the tokens of the step before. Bits are copied. */
    enum status (*constrain)(struct device *d, uint64_t ticket, const struct row_mask *masks,
                             uint32_t n);
    /* Waits for the ticket and fills *out. A device failure is ST_INTERNAL, a mask that did not
     * come ST_INVALID: the step is over and its sequences fail. */
    enum status (*complete)(struct device *d, uint64_t ticket, struct step_output *out);
    /* After complete of a step with want_logits: row's raw logits (n_vocab), until the next submit.
     */
    const float *(*logits)(const struct device *d, uint32_t row);
    /* When there is nothing else to do: a short piece of work that makes later steps faster. False:
     * none is left. NULL: the device has none. */
    bool (*warm)(struct device *d);
    /* Copies KV pages: n pairs, before the next submit. */
    enum status (*copy_pages)(struct device *d, const uint32_t *from, const uint32_t *to,
                              uint32_t n);
    /* Starts to load an adapter into a free adapter slot; `adapter_ready` says ST_OK when steps may
     * name it, ST_UNAVAILABLE while it loads, else why it can't. Drop when no step in flight names
     * it. NULL on a device without adapters: then no step may name one. */
    enum status (*adapter_load)(struct device *d, uint32_t adapter, const struct adapter *a);
    enum status (*adapter_ready)(struct device *d, uint32_t adapter);
    void (*adapter_drop)(struct device *d, uint32_t adapter);
};

struct device {
    const struct device_ops *ops;
};

#endif
