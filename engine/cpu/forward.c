#include "engine/cpu/forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"

#define BUFFER_ALIGN 64u

static size_t stride(size_t n)
{
    return (n + ACT_ALIGN - 1) & ~(size_t)(ACT_ALIGN - 1);
}

/* The widest input of a matrix product. */
static uint32_t widest(const struct model_shape *s)
{
    uint32_t heads = s->n_heads * s->head_dim, most = s->n_embd > s->n_ff ? s->n_embd : s->n_ff;

    return heads > most ? heads : most;
}

/* Hands out parts of one block; with base NULL it only measures. */
struct carver {
    uint8_t *base;
    size_t used;
    bool overflow;
};

static void *carve(struct carver *c, size_t count, size_t bytes_each)
{
    uint8_t *p = c->base == NULL ? NULL : c->base + c->used;
    size_t bytes;

    if (!size_mul(count, bytes_each, &bytes) || !size_add(bytes, BUFFER_ALIGN - 1, &bytes) ||
        !size_add(c->used, bytes & ~(size_t)(BUFFER_ALIGN - 1), &c->used))
        c->overflow = true;
    return p;
}

static struct rows carve_rows(struct carver *c, size_t n_rows, size_t width)
{
    size_t ld = stride(width);

    return (struct rows){.data = carve(c, n_rows, ld * sizeof(float)), .ld = ld};
}

static void carve_quants(struct carver *c, struct quants *q, size_t n_rows, size_t width)
{
    q->ldq = stride(width);
    q->ldb = q->ldq / QUANT_BLOCK;
    q->q = carve(c, n_rows, q->ldq);
    q->d = carve(c, n_rows, q->ldb * sizeof *q->d);
    q->d_sum = carve(c, n_rows, q->ldb * sizeof *q->d_sum);
    q->sum = carve(c, n_rows, q->ldb * sizeof *q->sum);
    q->low_sum = carve(c, n_rows, q->ldb * sizeof *q->low_sum);
}

/* Scratch pointers live in the block too; while measuring there is nothing to point from. */
static float **carve_scratch(struct carver *c, unsigned n_threads, size_t floats)
{
    float **out = carve(c, n_threads, sizeof *out);

    for (unsigned i = 0; i < n_threads; i++) {
        float *p = carve(c, floats, sizeof *p);

        if (out != NULL)
            out[i] = p;
    }
    return out;
}

/* Logits last: the rows that few steps touch are the block's tail. */
static void carve_all(struct forward *f, struct carver *c, const struct device_config *cfg,
                      unsigned n_threads, size_t logit_rows)
{
    const struct model_shape *s = &cfg->model->shape;
    size_t n = cfg->max_rows, heads = (size_t)s->n_heads * s->head_dim;
    size_t kv_heads = (size_t)s->n_kv_heads * s->head_dim;

    f->x = carve_rows(c, n, s->n_embd);
    f->normed = carve_rows(c, n, s->n_embd);
    f->q = carve_rows(c, n, heads);
    f->k = carve_rows(c, n, kv_heads);
    f->v = carve_rows(c, n, kv_heads);
    f->attended = carve_rows(c, n, heads);
    f->gate = carve_rows(c, n, s->n_ff);
    f->up = carve_rows(c, n, s->n_ff);
    f->cos = carve_rows(c, n, s->rope_dims);
    f->sin = carve_rows(c, n, s->rope_dims);
    carve_quants(c, &f->quants, n, widest(s));
    f->units = carve(c, n, sizeof *f->units);
    f->attention_scratch = carve_scratch(c, n_threads, attention_scratch_floats(s));
    f->row_scratch = carve_scratch(c, n_threads, weights_scratch_floats(widest(s)));
    f->logits = carve_rows(c, logit_rows, s->n_vocab);
}

size_t forward_scratch_bytes(const struct device_config *cfg, unsigned n_threads)
{
    struct forward f;
    struct carver c = {0};

    carve_all(&f, &c, cfg, n_threads, cfg->max_rows < LOGIT_ROWS ? cfg->max_rows : LOGIT_ROWS);
    return c.used;
}

static enum status map_buffers(struct forward *f, const struct device_config *cfg,
                               struct reason *why)
{
    unsigned n_threads = pool_n_threads(f->pool);
    struct carver c = {0};
    void *p;

    carve_all(f, &c, cfg, n_threads, cfg->max_rows);
    if (c.overflow)
        return fail(why, ST_TOO_LARGE, "the buffers of %u rows exceed memory", cfg->max_rows);
    p = mmap(NULL, c.used, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    if (p == MAP_FAILED)
        return fail(why, ST_NO_MEMORY, "no memory for %zu MiB of step buffers", c.used >> 20);
    f->memory = p;
    f->memory_bytes = c.used;
    c = (struct carver){.base = p};
    carve_all(f, &c, cfg, n_threads, cfg->max_rows);
    return ST_OK;
}

enum status forward_open(struct forward *f, const struct device_config *cfg,
                         const struct kernels *kernels, struct pool *pool, uint32_t n_pages,
                         struct reason *why)
{
    enum status s;

    memset(f, 0, sizeof *f);
    f->model = cfg->model;
    f->kernels = kernels;
    f->pool = pool;
    f->fast = cfg->mode == DEVICE_FAST;
    s = map_buffers(f, cfg, why);
    if (s == ST_OK)
        s = kv_open(&f->kv, &cfg->model->shape, f->fast ? &kernels->kv_f16 : &kernels->kv_f32,
                    n_pages, why);
    if (s == ST_OK)
        s = weights_open(&f->weights, cfg->model, kernels, f->fast, pool, why);
    return s;
}

void forward_close(struct forward *f)
{
    weights_close(&f->weights);
    kv_close(&f->kv);
    if (f->memory != NULL)
        munmap(f->memory, f->memory_bytes);
    memset(f, 0, sizeof *f);
}

static float *row_of(const struct rows *b, uint32_t row)
{
    return b->data + row * b->ld;
}

/* Quantizes what the next product reads, where one reads it so. */
static void prepare_input(struct forward *f, const float *x, uint32_t n, uint32_t col)
{
    if (f->fast)
        f->kernels->quantize(x, stride(n), &f->quants, col);
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

static struct product product_of(const struct weight *w, const struct rows *out, bool add)
{
    return (struct product){.w = w, .out = {.y = out->data, .ld = out->ld, .add = add}};
}

/* Input embedding, and the row's rotations: angle = position * base^(-2i / rope_dims). */
static void start_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;
    const struct model_shape *s = &f->model->shape;
    const struct weight *w = &f->weights.token_embd;
    float *x = row_of(&f->x, row), *c = row_of(&f->cos, row), *si = row_of(&f->sin, row);
    double position = f->step->rows[row].position;

    (void)thread;
    w->to_float(w->data + (size_t)f->ids[row] * w->row_bytes, x, s->n_embd);
    /* Whole groups of rows are added to the stream: clear what an earlier step left past its end.
     */
    memset(x + s->n_embd, 0, (f->x.ld - s->n_embd) * sizeof *x);
    for (uint32_t i = 0; i < s->rope_dims; i += 2) {
        double angle = position * pow(s->rope_base, -(double)i / s->rope_dims);

        c[i] = c[i + 1] = (float)cos(angle);
        si[i + 1] = (float)sin(angle);
        si[i] = -si[i + 1];
    }
}

static void norm_row(struct forward *f, const float *x, const float *weight, uint32_t out_row)
{
    const struct model_shape *s = &f->model->shape;
    float *out = row_of(&f->normed, out_row);

    f->kernels->rmsnorm(x, weight, s->n_embd, s->norm_eps, out);
    prepare_input(f, out, s->n_embd, out_row);
}

static void attention_norm_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;

    (void)thread;
    norm_row(f, row_of(&f->x, row), f->weights.layers[f->layer].attn_norm, row);
}

static void ffn_norm_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;

    (void)thread;
    norm_row(f, row_of(&f->x, row), f->weights.layers[f->layer].ffn_norm, row);
}

/* Rotates q and k, scales q, writes k and v into the row's page. */
static void position_row(void *arg, uint32_t row, unsigned thread)
{
    struct forward *f = arg;
    const struct model_shape *s = &f->model->shape;
    const struct step_row *r = &f->step->rows[row];
    uint32_t page =
        f->step->pages[f->step->sequences[r->sequence].first_page + r->position / KV_TOKENS];
    float *q = row_of(&f->q, row), *k = row_of(&f->k, row), *v = row_of(&f->v, row);
    const float *c = row_of(&f->cos, row), *si = row_of(&f->sin, row);
    float scale = 1.0f / sqrtf((float)s->head_dim);

    (void)thread;
    f->kernels->rope(q, s->n_heads, s->head_dim, c, si, s->rope_dims);
    f->kernels->rope(k, s->n_kv_heads, s->head_dim, c, si, s->rope_dims);
    for (uint32_t i = 0; i < s->n_heads * s->head_dim; i++)
        q[i] *= scale;
    for (uint32_t h = 0; h < s->n_kv_heads; h++) {
        uint8_t *part = kv_part(&f->kv, page, f->layer, h);

        f->kv.kernels->store(part, part + f->kv.part_bytes, r->position % KV_TOKENS,
                             k + (size_t)h * s->head_dim, v + (size_t)h * s->head_dim, s->head_dim,
                             f->kv.head_pad);
    }
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
    f->kernels->silu_mul(gate, row_of(&f->up, row), n_ff);
    prepare_input(f, gate, n_ff, row);
}

static void attend(struct forward *f)
{
    struct attention a = {.kernels = f->kernels,
                          .kv = &f->kv,
                          .step = f->step,
                          .layer = f->layer,
                          .n_heads = f->model->shape.n_heads,
                          .q = f->q.data,
                          .ldq = f->q.ld,
                          .out = f->attended.data,
                          .ldo = f->attended.ld,
                          .units = f->units,
                          .n_units = f->n_units,
                          .scratch = f->attention_scratch};

    attention_run(&a, f->pool);
}

static void run_layer(struct forward *f)
{
    const struct layer_weights *w = &f->weights.layers[f->layer];
    uint32_t n = f->step->n_rows;
    const struct product qkv[] = {product_of(&w->q, &f->q, false), product_of(&w->k, &f->k, false),
                                  product_of(&w->v, &f->v, false)};
    const struct product output = product_of(&w->output, &f->x, true);
    const struct product ffn[] = {product_of(&w->gate, &f->gate, false),
                                  product_of(&w->up, &f->up, false)};
    const struct product down = product_of(&w->down, &f->x, true);

    pool_run(f->pool, attention_norm_row, f, n);
    multiply(f, &f->normed, n, qkv, 3);
    pool_run(f->pool, position_row, f, n);
    attend(f);
    pool_run(f->pool, attended_row, f, n);
    multiply(f, &f->attended, n, &output, 1);
    pool_run(f->pool, ffn_norm_row, f, n);
    multiply(f, &f->normed, n, ffn, 2);
    pool_run(f->pool, gate_row, f, n);
    multiply(f, &f->gate, n, &down, 1);
}

void forward_run(struct forward *f, const struct device_step *step, const int32_t *ids)
{
    f->step = step;
    f->ids = ids;
    f->n_units = attention_units(step, f->units);
    pool_run(f->pool, start_row, f, step->n_rows);
    for (f->layer = 0; f->layer < f->model->shape.n_layers; f->layer++)
        run_layer(f);
}

static void output_norm_row(void *arg, uint32_t i, unsigned thread)
{
    struct forward *f = arg;

    (void)thread;
    norm_row(f, row_of(&f->x, f->wanted[i]), f->weights.output_norm, i);
}

void forward_logits(struct forward *f, const uint32_t *rows, uint32_t n, uint32_t to)
{
    struct rows out = {.data = row_of(&f->logits, to), .ld = f->logits.ld};
    const struct product output = product_of(&f->weights.output, &out, false);

    f->wanted = rows;
    pool_run(f->pool, output_norm_row, f, n);
    multiply(f, &f->normed, n, &output, 1);
}
