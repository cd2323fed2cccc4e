/* The forward pass's memory: one block for all buffers, carved at open. */
#include "engine/cpu/forward.h"

#include <string.h>
#include <sys/mman.h>

#include "base/size.h"
#include "engine/model/rope.h"

#define BUFFER_ALIGN 64u

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
    size_t ld = act_stride(width);

    return (struct rows){.data = carve(c, n_rows, ld * sizeof(float)), .ld = ld};
}

static void carve_quants(struct carver *c, struct quants *q, size_t n_rows, size_t width)
{
    q->ldq = act_stride(width);
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

/* Both kinds of layers where they differ, else one for both. */
static void carve_rotations(struct forward *f, struct carver *c, const struct model_rope *rope,
                            size_t n_rows)
{
    for (int i = 0; i < (rope->window_base != 0 ? 2 : 1); i++) {
        struct rotation *r = &f->rotations[i];

        r->freqs = carve(c, rope->dims / 2, sizeof *r->freqs);
        r->cos = carve_rows(c, n_rows, rope->dims);
        r->sin = carve_rows(c, n_rows, rope->dims);
    }
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
    f->branch = carve_rows(c, n, s->n_embd);
    carve_rotations(f, c, &s->rope, n);
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

static void set_rotations(struct forward *f, const struct device_config *cfg)
{
    const struct model_rope *rope = &cfg->model->shape.rope;

    for (int i = 0; i < 2 && f->rotations[i].freqs != NULL; i++)
        model_rope_frequencies(rope, cfg->max_context, i == 1, f->rotations[i].freqs,
                               &f->rotations[i].magnitude);
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
        set_rotations(f, cfg);
    if (s == ST_OK)
        s = kv_open(&f->kv, &cfg->model->shape, kv_kernels_of(kernels, cfg), n_pages, why);
    if (s == ST_OK)
        s = weights_open(&f->weights, cfg->model, kernels, f->fast, why);
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
