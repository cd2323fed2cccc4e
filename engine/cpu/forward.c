#include "engine/cpu/forward.h"

#include <math.h>
#include <string.h>

/* Quantizes what the next product reads, where one reads it so. */
static void prepare_input(struct forward *f, const float *x, uint32_t n, uint32_t col)
{
    if (f->fast)
        f->kernels->quantize(x, act_stride(n), &f->quants, col);
}

/* y = W x for up to three matrices over n_cols rows of `in`. */
static void multiply(struct forward *f, const struct rows *in, uint32_t n_cols,
                     const struct product *products, uint32_t n_products)
{
    struct product_job job = {.kernels = f->kernels,
                              .n_products = n_products,
                              .x = in->data,
                              .ldx = in->ld,
                              .quants = &f->quants,
                              .n_cols = n_cols,
                              .row_scratch = f->row_scratch};

    memcpy(job.products, products, n_products * sizeof *products);
    weights_multiply(&job, f->pool);
}

static struct product product_of(struct weight *w, const struct rows *out, bool add)
{
    return (struct product){.w = w, .out = {.y = out->data, .ld = out->ld, .add = add}};
}

/* Cosines and sines of a row: for adjacent pairs each value twice and the even sine negated. */
static void rotate_to(const struct rotation *r, const struct model_rope *rope, uint32_t row,
                      double position)
{
    float *c = row_of(&r->cos, row), *s = row_of(&r->sin, row);

    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        double angle = position * r->freqs[i];
        float cosine = (float)cos(angle) * r->magnitude, sine = (float)sin(angle) * r->magnitude;

        if (rope->pairs == ROPE_HALVES) {
            c[i] = cosine;
            s[i] = sine;
        } else {
            c[2 * i] = c[2 * i + 1] = cosine;
            s[2 * i] = -sine;
            s[2 * i + 1] = sine;
        }
    }
}

/* Input embedding, and the row's rotations. */
static void start_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;
    const struct model_shape *s = &f->model->shape;
    const struct weight *w = &f->weights.token_embd;
    float *x = row_of(&f->x, row);

    (void)thread;
    w->to_float(w->data + (size_t)f->ids[row] * w->row_bytes, x, s->n_embd);
    for (uint32_t i = 0; i < s->n_embd && s->embedding_scale != 1.0f; i++)
        x[i] *= s->embedding_scale;
    /* Whole groups of rows are added to the stream: clear what an earlier step left past its end.
     */
    memset(x + s->n_embd, 0, (f->x.ld - s->n_embd) * sizeof *x);
    for (int i = 0; i < 2 && f->rotations[i].freqs != NULL; i++)
        rotate_to(&f->rotations[i], &s->rope, row, f->step->rows[row].position);
}

static void norm_row(struct forward *f, const float *x, const float *weight, uint32_t out_row)
{
    const struct model_shape *s = &f->model->shape;
    float *out = row_of(&f->normed, out_row);

    f->kernels->rmsnorm(x, weight, s->n_embd, s->norm_eps, out);
    prepare_input(f, out, s->n_embd, out_row);
}

/* What a block reads of the residual stream: normed where `weight` says so. */
static void enter_row(struct forward *f, const float *weight, uint32_t row)
{
    const float *x = row_of(&f->x, row);

    if (weight != NULL)
        norm_row(f, x, weight, row);
    else
        prepare_input(f, x, f->model->shape.n_embd, row);
}

static void attention_enter_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;

    (void)thread;
    enter_row(f, f->weights.layers[f->layer].attn_norm, row);
}

static void ffn_enter_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;

    (void)thread;
    enter_row(f, f->weights.layers[f->layer].ffn_norm, row);
}

/* Adds what a block gave to the residual stream, normed and scaled. */
static void leave_row(struct forward *f, const float *weight, uint32_t row)
{
    const struct model_shape *s = &f->model->shape;
    float *branch = row_of(&f->branch, row);

    if (weight != NULL)
        f->kernels->rmsnorm(branch, weight, s->n_embd, s->norm_eps, branch);
    f->kernels->scale_add(row_of(&f->x, row), 1.0f, branch, s->residual_scale, s->n_embd);
}

static void attention_leave_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;

    (void)thread;
    leave_row(f, f->weights.layers[f->layer].attn_post_norm, row);
}

static void ffn_leave_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;

    (void)thread;
    leave_row(f, f->weights.layers[f->layer].ffn_post_norm, row);
}

/* Bias, norm and rotation of a row's queries or keys. */
static void finish_heads(const struct forward *f, float *x, uint32_t n_heads, const float *bias,
                         const float *norm, uint32_t row)
{
    const struct model_shape *s = &f->model->shape;
    const struct rotation *r = &f->rotations[0];
    uint32_t width = n_heads * s->head_dim;

    if (bias != NULL)
        f->kernels->scale_add(x, 1.0f, bias, 1.0f, width);
    if (norm != NULL && f->model->arch->qk_norm == QK_NORM_ALL)
        f->kernels->rmsnorm(x, norm, width, s->norm_eps, x);
    else if (norm != NULL)
        for (uint32_t h = 0; h < n_heads; h++)
            f->kernels->rmsnorm(x + (size_t)h * s->head_dim, norm, s->head_dim, s->norm_eps,
                                x + (size_t)h * s->head_dim);
    if (f->model->layers[f->layer].windowed && f->rotations[1].freqs != NULL)
        r = &f->rotations[1];
    (s->rope.pairs == ROPE_HALVES ? f->kernels->rope_halves : f->kernels->rope)(
        x, n_heads, s->head_dim, row_of(&r->cos, row), row_of(&r->sin, row), s->rope.dims);
}

/* Writes a row's keys and values into its page. */
static void store_row(const struct forward *f, const float *k, const float *v, uint32_t row)
{
    const struct model_shape *s = &f->model->shape;
    const struct step_row *r = &f->step->rows[row];
    uint32_t page =
        f->step->pages[f->step->sequences[r->sequence].first_page + r->position / KV_TOKENS];

    for (uint32_t h = 0; h < s->n_kv_heads; h++) {
        uint8_t *part = kv_part(&f->kv, page, f->layer, h);

        f->kv.kernels->store(part, part + f->kv.part_bytes, r->position % KV_TOKENS,
                             k + (size_t)h * s->head_dim, v + (size_t)h * s->head_dim, s->head_dim,
                             f->kv.head_pad);
    }
}

static void position_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;
    const struct model_shape *s = &f->model->shape;
    const struct layer_weights *w = &f->weights.layers[f->layer];
    float *q = row_of(&f->q, row), *k = row_of(&f->k, row), *v = row_of(&f->v, row);

    (void)thread;
    finish_heads(f, q, s->n_heads, w->q_bias, w->attn_q_norm, row);
    finish_heads(f, k, s->n_kv_heads, w->k_bias, w->attn_k_norm, row);
    if (w->v_bias != NULL)
        f->kernels->scale_add(v, 1.0f, w->v_bias, 1.0f, s->n_kv_heads * s->head_dim);
    for (uint32_t i = 0; i < s->n_heads * s->head_dim; i++)
        q[i] *= s->attention_scale;
    store_row(f, k, v, row);
}

static void attended_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;
    const struct model_shape *s = &f->model->shape;

    (void)thread;
    prepare_input(f, row_of(&f->attended, row), s->n_heads * s->head_dim, row);
}

static void gate_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;
    uint32_t n_ff = f->model->shape.n_ff;
    float *gate = row_of(&f->gate, row);

    (void)thread;
    (f->model->arch->activation == ACTIVATION_SILU ? f->kernels->silu_mul : f->kernels->gelu_mul)(
        gate, row_of(&f->up, row), n_ff);
    prepare_input(f, gate, n_ff, row);
}

static void attend(struct forward *f)
{
    const struct model_shape *s = &f->model->shape;
    struct attention a = {.kernels = f->kernels,
                          .kv = &f->kv,
                          .step = f->step,
                          .layer = f->layer,
                          .n_heads = s->n_heads,
                          .window = f->model->layers[f->layer].windowed ? s->window : 0,
                          .cap = s->attention_cap,
                          .q = f->q.data,
                          .ldq = f->q.ld,
                          .out = f->attended.data,
                          .ldo = f->attended.ld,
                          .units = f->units,
                          .n_units = f->n_units,
                          .scratch = f->attention_scratch};

    attention_run(&a, f->pool);
}

/* The last product of a block: straight onto the residual stream, or by way of a norm or a scale.
 */
static void leave_block(struct forward *f, const struct rows *in, struct weight *w,
                        const float *post_norm,
                        void (*leave)(void *arg, uint32_t row, unsigned thread))
{
    bool direct = post_norm == NULL && f->model->shape.residual_scale == 1.0f;
    const struct product product = product_of(w, direct ? &f->x : &f->branch, direct);

    multiply(f, in, f->step->n_rows, &product, 1);
    if (!direct)
        pool_run(f->pool, leave, f, f->step->n_rows);
}

static void run_attention(struct forward *f)
{
    struct layer_weights *w = &f->weights.layers[f->layer];
    uint32_t n = f->step->n_rows;
    const struct product qkv[] = {product_of(&w->q, &f->q, false), product_of(&w->k, &f->k, false),
                                  product_of(&w->v, &f->v, false)};

    pool_run(f->pool, attention_enter_row, f, n);
    multiply(f, w->attn_norm != NULL ? &f->normed : &f->x, n, qkv, 3);
    pool_run(f->pool, position_row, f, n);
    attend(f);
    pool_run(f->pool, attended_row, f, n);
    leave_block(f, &f->attended, &w->output, w->attn_post_norm, attention_leave_row);
}

static void run_feed_forward(struct forward *f)
{
    struct layer_weights *w = &f->weights.layers[f->layer];
    uint32_t n = f->step->n_rows;
    const struct product ffn[] = {product_of(&w->gate, &f->gate, false),
                                  product_of(&w->up, &f->up, false)};

    pool_run(f->pool, ffn_enter_row, f, n);
    multiply(f, w->ffn_norm != NULL ? &f->normed : &f->x, n, ffn, 2);
    pool_run(f->pool, gate_row, f, n);
    leave_block(f, &f->gate, &w->down, w->ffn_post_norm, ffn_leave_row);
}

void forward_run(struct forward *f, const struct device_step *step, const int32_t *ids)
{
    f->step = step;
    f->ids = ids;
    f->n_units = attention_units(step, f->units);
    pool_run(f->pool, start_row, f, step->n_rows);
    for (f->layer = 0; f->layer < f->model->shape.n_layers; f->layer++) {
        run_attention(f);
        run_feed_forward(f);
    }
}

static void output_norm_row(void *arg, uint32_t i, unsigned thread)
{
    struct forward *f = arg;

    (void)thread;
    norm_row(f, row_of(&f->x, f->wanted[i]), f->weights.output_norm, i);
}

/* Scale and cap of an output row. */
static void logits_row(void *arg, uint32_t i, unsigned thread)
{
    struct forward *f = arg;
    const struct model_shape *s = &f->model->shape;
    float *logits = row_of(&f->logits, f->logits_to + i);

    (void)thread;
    for (uint32_t t = 0; t < s->n_vocab && s->logit_scale != 1.0f; t++)
        logits[t] *= s->logit_scale;
    if (s->logit_cap != 0.0f)
        f->kernels->soft_cap(logits, s->n_vocab, s->logit_cap);
}

void forward_logits(struct forward *f, const uint32_t *rows, uint32_t n, uint32_t to)
{
    struct rows out = {.data = row_of(&f->logits, to), .ld = f->logits.ld};
    const struct product output = product_of(&f->weights.output, &out, false);

    f->wanted = rows;
    pool_run(f->pool, output_norm_row, f, n);
    multiply(f, &f->normed, n, &output, 1);
    f->logits_to = to;
    if (f->model->shape.logit_scale != 1.0f || f->model->shape.logit_cap != 0.0f)
        pool_run(f->pool, logits_row, f, n);
}
