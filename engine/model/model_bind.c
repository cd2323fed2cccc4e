/* Every weight found and measured, nothing left over. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/model/model_file.h"

/* Which tensors the model has taken: what remains in the file is refused. */
struct binding {
    const struct model *model;
    bool *taken; /* by tensor index */
    struct reason *why;
};

static void take(struct binding *b, const struct tensor *t)
{
    b->taken[t - gguf_tensor_at(b->model->gguf, 0)] = true;
}

/* Finds a matrix (rows, cols), or a vector (cols) where rows is 0. */
static enum status bind_tensor(struct binding *b, const char *name, uint32_t rows, uint32_t cols,
                               const struct tensor **out)
{
    const struct tensor *t = gguf_tensor(b->model->gguf, name);
    uint32_t n_dims = rows == 0 ? 1 : 2;

    if (t == NULL)
        return fail(b->why, ST_CORRUPT, "the file lacks the tensor %s", name);
    if (t->n_dims != n_dims || t->dims[0] != cols || (rows != 0 && t->dims[1] != rows))
        return fail(b->why, ST_CORRUPT, "tensor %s has the shape (%llu, %llu), not (%u, %u)", name,
                    (unsigned long long)t->dims[1], (unsigned long long)t->dims[0],
                    rows == 0 ? 1 : rows, cols);
    if (rows == 0 && t->type != TENSOR_F32 && t->type != TENSOR_F16 && t->type != TENSOR_BF16)
        return fail(b->why, ST_UNSUPPORTED,
                    "tensor %s has type %s; norms and biases must be F32, F16 or BF16", name,
                    tensor_type_name(t->type));
    take(b, t);
    *out = t;
    return ST_OK;
}

/* A tensor of a layer, and where it belongs. rows 0: a vector. */
struct layer_tensor {
    const char *suffix;
    uint32_t rows, cols;
    size_t offset; /* in struct model_layer */
    bool used;
};

static enum status bind_list(struct binding *b, const struct layer_tensor *list, size_t n,
                             uint32_t layer, struct model_layer *l)
{
    char name[64];

    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = NULL;
        enum status s;

        if (!list[i].used)
            continue;
        snprintf(name, sizeof name, "blk.%u.%s", layer, list[i].suffix);
        s = bind_tensor(b, name, list[i].rows, list[i].cols, &t);
        if (s != ST_OK)
            return s;
        memcpy((char *)l + list[i].offset, &t, sizeof t);
    }
    return ST_OK;
}

/* Rows [first, first + rows) of a matrix, as a matrix. */
static const struct tensor *cut_rows(const struct tensor *t, uint32_t first, uint32_t rows,
                                     struct tensor *out)
{
    size_t row_bytes = t->bytes / t->dims[1];

    *out = *t;
    out->dims[1] = rows;
    out->data = (const char *)t->data + first * row_bytes;
    out->bytes = rows * row_bytes;
    return out;
}

static enum status bind_fused(struct binding *b, uint32_t layer, struct model_layer *l)
{
    const struct model_shape *p = &b->model->shape;
    const uint32_t q = p->n_heads * p->head_dim, kv = p->n_kv_heads * p->head_dim;
    const struct tensor *qkv = NULL, *gate_up = NULL;
    char name[64];
    enum status s;

    snprintf(name, sizeof name, "blk.%u.attn_qkv.weight", layer);
    s = bind_tensor(b, name, q + 2 * kv, p->n_embd, &qkv);
    if (s != ST_OK)
        return s;
    snprintf(name, sizeof name, "blk.%u.ffn_up.weight", layer);
    s = bind_tensor(b, name, 2 * p->n_ff, p->n_embd, &gate_up);
    if (s != ST_OK || qkv == NULL || gate_up == NULL)
        return s;
    l->attn_q = cut_rows(qkv, 0, q, &l->parts[0]);
    l->attn_k = cut_rows(qkv, q, kv, &l->parts[1]);
    l->attn_v = cut_rows(qkv, q + kv, kv, &l->parts[2]);
    l->ffn_gate = cut_rows(gate_up, 0, p->n_ff, &l->parts[3]);
    l->ffn_up = cut_rows(gate_up, p->n_ff, p->n_ff, &l->parts[4]);
    return ST_OK;
}

#define AT(member) offsetof(struct model_layer, member)
static enum status bind_layer(struct binding *b, uint32_t layer, struct model_layer *l)
{
    const struct model_shape *p = &b->model->shape;
    const struct arch *a = b->model->arch;
    const uint32_t q = p->n_heads * p->head_dim, kv = p->n_kv_heads * p->head_dim;
    const bool before = (a->norm_place & NORM_BEFORE) != 0,
               after = (a->norm_place & NORM_AFTER) != 0;
    const bool qk_norm = a->qk_norm != QK_NORM_NONE, all = a->qk_norm == QK_NORM_ALL;
    const struct layer_tensor list[] = {
        {"attn_norm.weight", 0, p->n_embd, AT(attn_norm), before},
        {"attn_q.weight", q, p->n_embd, AT(attn_q), !a->fused},
        {"attn_k.weight", kv, p->n_embd, AT(attn_k), !a->fused},
        {"attn_v.weight", kv, p->n_embd, AT(attn_v), !a->fused},
        {"attn_q.bias", 0, q, AT(attn_q_bias), a->qkv_bias},
        {"attn_k.bias", 0, kv, AT(attn_k_bias), a->qkv_bias},
        {"attn_v.bias", 0, kv, AT(attn_v_bias), a->qkv_bias},
        {"attn_q_norm.weight", 0, all ? q : p->head_dim, AT(attn_q_norm), qk_norm},
        {"attn_k_norm.weight", 0, all ? kv : p->head_dim, AT(attn_k_norm), qk_norm},
        {"attn_output.weight", p->n_embd, q, AT(attn_output), true},
        {"post_attention_norm.weight", 0, p->n_embd, AT(attn_post_norm), after},
        {"ffn_norm.weight", 0, p->n_embd, AT(ffn_norm), before},
        {"ffn_gate.weight", p->n_ff, p->n_embd, AT(ffn_gate), !a->fused},
        {"ffn_up.weight", p->n_ff, p->n_embd, AT(ffn_up), !a->fused},
        {"ffn_down.weight", p->n_embd, p->n_ff, AT(ffn_down), true},
        {"post_ffw_norm.weight", 0, p->n_embd, AT(ffn_post_norm), after},
    };
    enum status s = bind_list(b, list, COUNT_OF(list), layer, l);

    return s == ST_OK && a->fused ? bind_fused(b, layer, l) : s;
}

/* A tensor that we don't use would change the result of a program that does. */
static enum status refuse_leftovers(const struct binding *b)
{
    const struct gguf *g = b->model->gguf;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        const char *dot = strrchr(name, '.');

        if (b->taken[i])
            continue;
        if (dot != NULL && strcmp(dot, ".bias") == 0)
            return fail(b->why, ST_UNSUPPORTED,
                        "tensor %s: a bias is not supported here in models of architecture %s",
                        name, b->model->arch->name);
        return fail(b->why, ST_UNSUPPORTED, "tensor %s is not part of a model of architecture %s",
                    name, b->model->arch->name);
    }
    return ST_OK;
}

static void take_divisors(struct binding *b)
{
    const struct model_rope *r = &b->model->shape.rope;
    const struct tensor *all[] = {r->divisors, r->short_divisors, r->long_divisors};

    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] != NULL)
            take(b, all[i]);
}

static enum status bind_all(struct binding *b, struct model *m)
{
    const struct model_shape *p = &m->shape;
    enum status s = bind_tensor(b, "token_embd.weight", p->n_vocab, p->n_embd, &m->token_embd);

    if (s == ST_OK)
        s = bind_tensor(b, "output_norm.weight", 0, p->n_embd, &m->output_norm);
    m->output = m->token_embd;
    if (s == ST_OK && gguf_tensor(m->gguf, "output.weight") != NULL)
        s = bind_tensor(b, "output.weight", p->n_vocab, p->n_embd, &m->output);
    for (uint32_t i = 0; i < p->n_layers && s == ST_OK; i++)
        s = bind_layer(b, i, &m->layers[i]);
    take_divisors(b);
    return s == ST_OK ? refuse_leftovers(b) : s;
}

/* Which layers have the window: the file's list, its period, or the architecture's. */
static enum status mark_windowed(struct model *m, struct reason *why)
{
    uint32_t period = m->arch->period, n;
    char key[MODEL_KEY_MAX];
    enum gguf_type type;
    size_t listed;
    bool is_list;

    if (m->shape.window == 0)
        return ST_OK;
    model_key(m->arch, "attention.sliding_window_pattern", key);
    is_list = gguf_array(m->gguf, key, &type, &listed);
    if (is_list && (type != GGUF_BOOL || listed != m->shape.n_layers))
        return fail_param(why, ST_CORRUPT, key, "%s is not a boolean for each of %u layers", key,
                          m->shape.n_layers);
    if (!is_list && gguf_has(m->gguf, key) && !gguf_get_u32(m->gguf, key, &period))
        return fail_param(why, ST_CORRUPT, key, "%s is neither a list nor a number", key);
    for (n = 0; n < m->shape.n_layers; n++)
        m->layers[n].windowed =
            is_list ? gguf_array_bool(m->gguf, key, n) : period == 0 || n % period < period - 1;
    return ST_OK;
}

enum status model_bind(struct model *m, struct reason *why)
{
    struct binding b = {.model = m, .why = why};
    enum status s;

    m->layers = calloc(m->shape.n_layers, sizeof *m->layers);
    b.taken = calloc(gguf_n_tensors(m->gguf) + 1, sizeof *b.taken);
    if (m->layers == NULL || b.taken == NULL) {
        free(b.taken);
        return fail(why, ST_NO_MEMORY, "out of memory for the layer table");
    }
    s = bind_all(&b, m);
    free(b.taken);
    return s == ST_OK ? mark_windowed(m, why) : s;
}
