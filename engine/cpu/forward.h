/* The transformer on the CPU: one mixed batch of rows through all layers. Everything a step needs
 * is allocated at open; forward_run and forward_logits allocate nothing. Owner: the device's
 * thread; pool threads write disjoint rows. */
#ifndef ENGINE_CPU_FORWARD_H
#define ENGINE_CPU_FORWARD_H

#include "base/status.h"
#include "engine/core/device.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/threads.h"
#include "engine/cpu/weights.h"

/* Rows whose logits are computed in one pass over the output matrix. */
#define LOGIT_ROWS 64u

/* A (rows, ld) buffer of floats. */
struct rows {
    float *data;
    size_t ld;
};

/* RoPE for layers of one kind. */
struct rotation {
    double *freqs; /* (rope dims / 2): radians per position */
    float magnitude;
    struct rows cos, sin; /* (max_rows, rope dims), laid out as the kernel wants them */
};

struct forward {
    const struct model *model;
    const struct kernels *kernels;
    struct pool *pool;
    bool fast;
    struct weights weights;
    struct kv kv;
    uint8_t *memory; /* all buffers below */
    size_t memory_bytes;
    struct rows x;        /* (max_rows, n_embd): the residual stream */
    struct rows normed;   /* (max_rows, n_embd) */
    struct rows q;        /* (max_rows, n_heads * head_dim) */
    struct rows k, v;     /* (max_rows, n_kv_heads * head_dim) */
    struct rows attended; /* (max_rows, n_heads * head_dim) */
    struct rows gate, up; /* (max_rows, n_ff) */
    struct rows branch;   /* (max_rows, n_embd): what a block gives, before its norm and scale */
    struct rotation rotations[2]; /* of global and of windowed layers */
    struct rows logits;   /* (max_rows, n_vocab); beyond LOGIT_ROWS touched only by want_logits */
    struct quants quants; /* (max_rows, the widest input) */
    struct attention_unit *units;
    float **attention_scratch; /* per thread */
    float **row_scratch;       /* per thread */
    /* of the running step */
    const struct device_step *step;
    const int32_t *ids; /* (n_rows): resolved input ids */
    uint32_t n_units;
    uint32_t layer;
    const uint32_t *wanted; /* rows of the output pass */
    uint32_t logits_to;     /* the first row of logits that it writes */
};

/* Bytes of the buffers for cfg, those that only want_logits touches left out. */
size_t forward_scratch_bytes(const struct device_config *cfg, unsigned n_threads);
MUST_CHECK enum status forward_open(struct forward *f, const struct device_config *cfg,
                                    const struct kernels *kernels, struct pool *pool,
                                    uint32_t n_pages, struct reason *why);
void forward_close(struct forward *f); /* also after a failed open */

/* Runs all layers over the step's rows; ids are the input ids. */
void forward_run(struct forward *f, const struct device_step *step, const int32_t *ids);
/* Logits of `n` rows of the last run into f->logits rows [to, to + n); n <= LOGIT_ROWS, rows
 * ascending. */
void forward_logits(struct forward *f, const uint32_t *rows, uint32_t n, uint32_t to);

/* A row of a buffer. */
static inline float *row_of(const struct rows *b, uint32_t row)
{
    return b->data + row * b->ld;
}

/* Floats from one row of activations of width n to the next. */
static inline size_t act_stride(size_t n)
{
    return (n + ACT_ALIGN - 1) & ~(size_t)(ACT_ALIGN - 1);
}

#endif
