#include "engine/cpu/weights.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"
#include "engine/cpu/packed.h"

/* Output rows that one pool item computes: 32 rows of a 1536-wide Q4_1 matrix are 31 KB, which
 * stays in the second cache while the columns pass by, and a small matrix still has enough items
 * for several threads. */
#define ITEM_ROWS 32u

/* Far from overflow: a tensor lies in the file, and its packed copy takes at most twice its bytes
 * and 8 rows. */
static size_t packed_bytes(const struct tensor *t)
{
    if (!quant_is(t->type))
        return 0;
    return packed_groups((uint32_t)t->dims[1]) * packed_group_bytes(t->type, (uint32_t)t->dims[0]);
}

size_t weights_packed_bytes(const struct model *model, bool pack)
{
    size_t sum = 0;

    if (!pack)
        return 0;
    for (uint32_t i = 0; i < model->shape.n_layers; i++) {
        const struct model_layer *l = &model->layers[i];

        sum += packed_bytes(l->attn_q) + packed_bytes(l->attn_k) + packed_bytes(l->attn_v) +
               packed_bytes(l->attn_output) + packed_bytes(l->ffn_gate) + packed_bytes(l->ffn_up) +
               packed_bytes(l->ffn_down);
    }
    return sum + packed_bytes(model->output);
}

static void pack_group(void *arg, uint32_t group, unsigned thread)
{
    const struct weight *w = arg;
    uint32_t first = group * PACK_ROWS, left = w->n_rows - first;

    (void)thread;
    packed_fill(w->type, w->data + (size_t)first * w->row_bytes, w->row_bytes,
                left < PACK_ROWS ? left : PACK_ROWS, w->k,
                w->packed_out + group * w->packed.group_bytes);
}

/* False: there is nothing to do. */
static bool repack(struct weight *w, struct pool *pool)
{
    if (w->packed_out == NULL)
        return false;
    pool_run(pool, pack_group, w, packed_groups(w->n_rows));
    w->packed_out = NULL;
    return true;
}

static bool repack_layer(struct layer_weights *l, struct pool *pool)
{
    return repack(&l->q, pool) || repack(&l->k, pool) || repack(&l->v, pool) ||
           repack(&l->output, pool) || repack(&l->gate, pool) || repack(&l->up, pool) ||
           repack(&l->down, pool);
}

bool weights_repack(struct weights *w, const struct model *model, struct pool *pool)
{
    for (uint32_t i = 0; i < model->shape.n_layers; i++)
        if (repack_layer(&w->layers[i], pool))
            return true;
    return repack(&w->output, pool);
}

struct opening {
    struct weights *weights;
    const struct kernels *kernels;
    bool pack;
    size_t used; /* of weights->memory */
};

static void set_weight(struct opening *o, struct weight *w, const struct tensor *t, bool pack)
{
    size_t bytes = packed_bytes(t);

    w->data = t->data;
    w->n_rows = (uint32_t)t->dims[1];
    w->k = (uint32_t)t->dims[0];
    w->row_bytes = t->bytes / w->n_rows;
    w->type = t->type;
    w->to_float = o->kernels->decode[t->type];
    if (!pack || bytes == 0)
        return;
    w->packed_matmul = o->kernels->packed[t->type];
    w->packed.data = w->packed_out = o->weights->memory + o->used;
    w->packed.n_blocks = w->k / QUANT_BLOCK;
    w->packed.group_bytes = packed_group_bytes(t->type, w->k);
    o->used += bytes;
}

/* Huge pages: a step walks all of it, and small pages would cost a translation per 25 blocks. */
static enum status map_memory(struct weights *w, size_t bytes, struct reason *why)
{
    void *p;

    if (bytes == 0)
        return ST_OK;
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return fail(why, ST_NO_MEMORY, "no memory for %zu MiB of repacked weights", bytes >> 20);
    madvise(p, bytes, MADV_HUGEPAGE);
    w->memory = p;
    w->memory_bytes = bytes;
    return ST_OK;
}

#define FROM(member) offsetof(struct model_layer, member)
#define TO(member)   offsetof(struct layer_weights, member)
static const struct {
    size_t from, to;
    bool is_norm;
} vectors[] = {
    {FROM(attn_norm), TO(attn_norm), true},
    {FROM(attn_q_norm), TO(attn_q_norm), true},
    {FROM(attn_k_norm), TO(attn_k_norm), true},
    {FROM(ffn_norm), TO(ffn_norm), true},
    {FROM(attn_post_norm), TO(attn_post_norm), true},
    {FROM(ffn_post_norm), TO(ffn_post_norm), true},
    {FROM(attn_q_bias), TO(q_bias), false},
    {FROM(attn_k_bias), TO(k_bias), false},
    {FROM(attn_v_bias), TO(v_bias), false},
};

static const struct tensor *vector_of(const struct model_layer *l, size_t i)
{
    const struct tensor *t;

    memcpy(&t, (const char *)l + vectors[i].from, sizeof t);
    return t;
}

/* Floats of all vectors; the file's size bounds them. */
static size_t n_vector_floats(const struct model *model)
{
    size_t n = model->shape.n_embd;

    for (uint32_t l = 0; l < model->shape.n_layers; l++)
        for (size_t i = 0; i < COUNT_OF(vectors); i++) {
            const struct tensor *t = vector_of(&model->layers[l], i);

            n += t != NULL ? t->dims[0] : 0;
        }
    return n;
}

/* Norms and biases of any type become floats; returns where the next one goes. */
static float *set_vector(struct opening *o, const struct tensor *t, float offset, float *out)
{
    struct weight w = {0};

    set_weight(o, &w, t, false);
    w.to_float(t->data, out, w.k);
    for (uint32_t i = 0; i < w.k && offset != 0.0f; i++)
        out[i] += offset;
    return out + w.k;
}

static float *set_vectors(struct opening *o, struct layer_weights *out,
                          const struct model_layer *in, float norm_offset, float *at)
{
    for (size_t i = 0; i < COUNT_OF(vectors); i++) {
        const struct tensor *t = vector_of(in, i);

        if (t == NULL)
            continue;
        memcpy((char *)out + vectors[i].to, &at, sizeof at);
        at = set_vector(o, t, vectors[i].is_norm ? norm_offset : 0.0f, at);
    }
    return at;
}

static void set_matrices(struct opening *o, struct layer_weights *out, const struct model_layer *in)
{
    set_weight(o, &out->q, in->attn_q, o->pack);
    set_weight(o, &out->k, in->attn_k, o->pack);
    set_weight(o, &out->v, in->attn_v, o->pack);
    set_weight(o, &out->output, in->attn_output, o->pack);
    set_weight(o, &out->gate, in->ffn_gate, o->pack);
    set_weight(o, &out->up, in->ffn_up, o->pack);
    set_weight(o, &out->down, in->ffn_down, o->pack);
}

enum status weights_open(struct weights *w, const struct model *model,
                         const struct kernels *kernels, bool pack, struct reason *why)
{
    struct opening o = {.weights = w, .kernels = kernels, .pack = pack};
    const struct model_shape *p = &model->shape;
    enum status s;
    float *at;

    memset(w, 0, sizeof *w);
    s = map_memory(w, weights_packed_bytes(model, pack), why);
    if (s != ST_OK)
        return s;
    w->layers = calloc(p->n_layers, sizeof *w->layers);
    w->vectors = at = calloc(n_vector_floats(model), sizeof *w->vectors);
    if (w->layers == NULL || w->vectors == NULL)
        return fail(why, ST_NO_MEMORY, "no memory for %u layers", p->n_layers);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        at = set_vectors(&o, &w->layers[i], &model->layers[i], p->norm_offset, at);
        set_matrices(&o, &w->layers[i], &model->layers[i]);
    }
    w->output_norm = at;
    (void)set_vector(&o, model->output_norm, p->norm_offset, at);
    set_weight(&o, &w->token_embd, model->token_embd, false);
    set_weight(&o, &w->output, model->output, pack);
    return ST_OK;
}

void weights_close(struct weights *w)
{
    if (w->memory != NULL)
        munmap(w->memory, w->memory_bytes);
    free(w->layers);
    free(w->vectors);
    memset(w, 0, sizeof *w);
}

static uint32_t padded(uint32_t n)
{
    return (n + ACT_ALIGN - 1) & ~(ACT_ALIGN - 1u);
}

size_t weights_scratch_floats(uint32_t k)
{
    return (size_t)DOT_ROWS * padded(k);
}

/* Packed products write whole groups of rows; so do these, or a NaN that a layer of packed weights
 * left past a row's end would be read by a layer of float ones. */
static void clear_tail(const struct product *p, uint32_t n_cols)
{
    uint32_t n = p->w->n_rows, tail = packed_groups(n) * PACK_ROWS - n;

    for (size_t c = 0; c < n_cols; c++)
        memset(p->out.y + c * p->out.ld + n, 0, tail * sizeof *p->out.y);
}

/* Rows [first, last) in float: DOT_ROWS of them are decoded once and serve all columns. */
static void multiply_float(const struct product_job *job, const struct product *p, uint32_t first,
                           uint32_t last, float *scratch)
{
    const struct weight *w = p->w;
    size_t ld = padded(w->k);

    for (uint32_t r = first; r < last; r += DOT_ROWS) {
        uint32_t n = last - r < DOT_ROWS ? last - r : DOT_ROWS;
        struct outputs out = p->out;

        out.y += r;
        for (uint32_t i = 0; i < n; i++) {
            w->to_float(w->data + (size_t)(r + i) * w->row_bytes, scratch + i * ld, w->k);
            memset(scratch + i * ld + w->k, 0, (ld - w->k) * sizeof *scratch);
        }
        job->kernels->dot_rows(scratch, ld, n, job->x, job->ldx, job->n_cols, ld, &out);
    }
    if (last == w->n_rows && !p->out.add)
        clear_tail(p, job->n_cols);
}

static void multiply_item(void *arg, uint32_t item, unsigned thread)
{
    const struct product_job *job = arg;
    uint32_t i = 0, first, last;
    const struct product *p;

    while (item >= job->first_item[i + 1])
        i++;
    p = &job->products[i];
    first = (item - job->first_item[i]) * ITEM_ROWS;
    last = p->w->n_rows - first < ITEM_ROWS ? p->w->n_rows : first + ITEM_ROWS;
    if (p->w->packed_matmul == NULL)
        multiply_float(job, p, first, last, job->row_scratch[thread]);
    else
        p->w->packed_matmul(&p->w->packed, first / PACK_ROWS, packed_groups(last), job->quants,
                            job->n_cols, &p->out);
}

void weights_multiply(struct product_job *job, struct pool *pool)
{
    job->first_item[0] = 0;
    for (uint32_t i = 0; i < job->n_products; i++) {
        (void)repack(job->products[i].w, pool);
        job->first_item[i + 1] =
            job->first_item[i] + (job->products[i].w->n_rows + ITEM_ROWS - 1) / ITEM_ROWS;
    }
    pool_run(pool, multiply_item, job, job->first_item[job->n_products]);
}
