/* The matrices of a model as the CPU kernels read them: in place in the model's mapping, or, for
 * quantized types in fast mode, repacked into groups of 8 rows (see packed.h) in memory of our
 * own. A matrix is repacked when it is first multiplied or by weights_repack, whichever comes
 * first: opening a model of any size takes no longer than reading its head. Belongs to its device.
 */
#ifndef ENGINE_CPU_WEIGHTS_H
#define ENGINE_CPU_WEIGHTS_H

#include <stdbool.h>

#include "base/status.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/threads.h"
#include "engine/model/model.h"

struct weight {
    const uint8_t *data; /* (n_rows, row_bytes), as in the file */
    size_t row_bytes;
    uint32_t n_rows;              /* outputs */
    uint32_t k;                   /* inputs */
    decode_row *to_float;         /* of its type */
    packed_matmul *packed_matmul; /* NULL: computed from `data` in float */
    uint8_t *packed_out;          /* where its groups go; NULL: they are there, or not wanted */
    uint32_t type;
    struct packed packed;
};

struct layer_weights {
    struct weight q, k, v, output, gate, up, down;
    /* As in struct model_layer; NULL where the model has none. Norms have the offset added. */
    const float *attn_norm, *attn_q_norm, *attn_k_norm, *attn_post_norm, *ffn_norm, *ffn_post_norm;
    const float *q_bias, *k_bias, *v_bias;
};

struct weights {
    struct layer_weights *layers; /* n_layers */
    struct weight token_embd;     /* read by row, never packed */
    struct weight output;
    const float *output_norm; /* (n_embd) */
    uint8_t *memory;          /* all packed groups */
    size_t memory_bytes;
    float *vectors; /* norms and biases */
};

/* Bytes of the repacked copies that `model` needs (0 unless `pack`). */
size_t weights_packed_bytes(const struct model *model, bool pack);

/* `model` must outlive the weights. */
MUST_CHECK enum status weights_open(struct weights *w, const struct model *model,
                                    const struct kernels *kernels, bool pack, struct reason *why);
/* Repacks one more matrix on `pool`; false: none is left. */
bool weights_repack(struct weights *w, const struct model *model, struct pool *pool);
void weights_close(struct weights *w); /* also after a failed open */

/* One matrix of a product; several that read the same input run as one job. */
struct product {
    struct weight *w;
    struct outputs out; /* (n_cols, >= n_rows rounded up to PACK_ROWS) */
};

#define PRODUCTS_MAX 3
struct product_job {
    const struct kernels *kernels;
    struct product products[PRODUCTS_MAX];
    uint32_t n_products;
    const float *x; /* (n_cols, ldx): for weights that aren't packed */
    size_t ldx;
    const struct quants *quants; /* (n_cols, ...): for packed ones */
    uint32_t n_cols;
    float **row_scratch;    /* per thread: weights_scratch_floats */
    uint32_t first_item[4]; /* filled by weights_multiply */
};

/* Floats of one thread's scratch for matrices of at most k inputs. */
size_t weights_scratch_floats(uint32_t k);
/* Computes all products on the pool; repacks first what was not. */
void weights_multiply(struct product_job *job, struct pool *pool);

#endif
