/* Opening a model: shape from the metadata, every weight found and measured, nothing left over. */
#include "engine/model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/size.h"
#include "base/utf8.h"
#include "engine/model/hf.h"
#include "engine/model/model_file.h"

/* Far above any dense Llama (405B: 126 layers, width 16384, 128 heads), and small enough that no
 * product of two of them overflows 64 bits. */
#define LAYERS_MAX   512
#define WIDTH_MAX    65536
#define HEADS_MAX    1024
#define HEAD_DIM_MAX 1024
#define FF_MAX       ((uint32_t)1 << 20)
#define VOCAB_MAX    ((uint32_t)1 << 20)
#define CONTEXT_MAX  ((uint32_t)1 << 24)
/* What the format says of files that leave the key out. */
#define ROPE_BASE_DEFAULT 10000.0f

static enum status get_size(const struct gguf *g, const char *key, uint32_t max, uint32_t *out,
                            struct reason *why)
{
    uint32_t v;

    if (!gguf_has(g, key))
        return fail_param(why, ST_CORRUPT, key, "the file lacks %s", key);
    if (!gguf_get_u32(g, key, &v) || v == 0 || v > max)
        return fail_param(why, ST_UNSUPPORTED, key, "%s is not one number from 1 to %u", key, max);
    *out = v;
    return ST_OK;
}

/* As get_size; *out keeps what it has where the file lacks the key. */
static enum status get_optional_size(const struct gguf *g, const char *key, uint32_t max,
                                     uint32_t *out, struct reason *why)
{
    return gguf_has(g, key) ? get_size(g, key, max, out, why) : ST_OK;
}

static enum status read_sizes(const struct gguf *g, struct model_shape *p, struct reason *why)
{
    const struct {
        const char *key;
        uint32_t max;
        uint32_t *out;
    } sizes[] = {
        {"llama.block_count", LAYERS_MAX, &p->n_layers},
        {"llama.embedding_length", WIDTH_MAX, &p->n_embd},
        {"llama.attention.head_count", HEADS_MAX, &p->n_heads},
        {"llama.feed_forward_length", FF_MAX, &p->n_ff},
        {"llama.context_length", CONTEXT_MAX, &p->context_tokens},
    };

    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        enum status s = get_size(g, sizes[i].key, sizes[i].max, sizes[i].out, why);

        if (s != ST_OK)
            return s;
    }
    p->n_kv_heads = p->n_heads;
    return get_optional_size(g, "llama.attention.head_count_kv", HEADS_MAX, &p->n_kv_heads, why);
}

/* A head is n_embd / n_heads wide unless the file says otherwise; keys and values alike. */
static enum status read_heads(const struct gguf *g, struct model_shape *p, struct reason *why)
{
    uint32_t value_dim;
    enum status s;

    if (p->n_heads % p->n_kv_heads != 0)
        return fail(why, ST_CORRUPT, "%u query heads can't share %u KV heads", p->n_heads,
                    p->n_kv_heads);
    if (!gguf_has(g, "llama.attention.key_length") && p->n_embd % p->n_heads != 0)
        return fail(why, ST_CORRUPT, "a width of %u can't be cut into %u heads", p->n_embd,
                    p->n_heads);
    p->head_dim = p->n_embd / p->n_heads;
    s = get_optional_size(g, "llama.attention.key_length", HEAD_DIM_MAX, &p->head_dim, why);
    if (s != ST_OK)
        return s;
    value_dim = p->n_embd / p->n_heads;
    s = get_optional_size(g, "llama.attention.value_length", HEAD_DIM_MAX, &value_dim, why);
    if (s != ST_OK)
        return s;
    if (value_dim != p->head_dim)
        return fail(why, ST_UNSUPPORTED,
                    "keys of %u and values of %u dimensions: only equal ones "
                    "are supported",
                    p->head_dim, value_dim);
    return ST_OK;
}

static enum status read_rope_and_norm(const struct gguf *g, struct model_shape *p,
                                      struct reason *why)
{
    const char *base = "llama.rope.freq_base", *eps = "llama.attention.layer_norm_rms_epsilon";
    enum status s;

    p->rope_dims = p->head_dim;
    s = get_optional_size(g, "llama.rope.dimension_count", p->head_dim, &p->rope_dims, why);
    if (s != ST_OK)
        return s;
    if (p->rope_dims % 2 != 0)
        return fail(why, ST_CORRUPT, "an odd number of rotated dimensions (%u)", p->rope_dims);
    p->rope_base = ROPE_BASE_DEFAULT;
    if (gguf_has(g, base) && !gguf_get_f32(g, base, &p->rope_base))
        return fail_param(why, ST_CORRUPT, base, "%s is not a number", base);
    if (!isfinite(p->rope_base) || p->rope_base < 1.0f)
        return fail_param(why, ST_CORRUPT, base, "%s is not a finite number from 1", base);
    if (!gguf_get_f32(g, eps, &p->norm_eps) || !(p->norm_eps > 0.0f && p->norm_eps < 1.0f))
        return fail_param(why, ST_CORRUPT, eps, "%s is absent or not between 0 and 1", eps);
    return ST_OK;
}

/* The vocabulary's size is the embedding's; what the metadata says must agree. */
static enum status read_vocab(struct model *m, struct reason *why)
{
    const struct tensor *t = gguf_tensor(m->gguf, "token_embd.weight");
    enum gguf_type type;
    uint32_t said;
    size_t n;

    if (t == NULL)
        return fail(why, ST_CORRUPT, "the file lacks the tensor token_embd.weight");
    if (t->dims[1] > VOCAB_MAX)
        return fail(why, ST_UNSUPPORTED, "a vocabulary of %llu tokens; at most %u are supported",
                    (unsigned long long)t->dims[1], VOCAB_MAX);
    m->shape.n_vocab = (uint32_t)t->dims[1];
    said = m->shape.n_vocab;
    if (gguf_has(m->gguf, "llama.vocab_size") &&
        (!gguf_get_u32(m->gguf, "llama.vocab_size", &said) || said != m->shape.n_vocab))
        return fail(why, ST_CORRUPT, "llama.vocab_size differs from the embedding's %u rows",
                    m->shape.n_vocab);
    if (gguf_array(m->gguf, "tokenizer.ggml.tokens", &type, &n) && n != m->shape.n_vocab)
        return fail(why, ST_CORRUPT, "%zu tokens but an embedding of %u rows", n, m->shape.n_vocab);
    return ST_OK;
}

static enum status read_shape(struct model *m, struct reason *why)
{
    enum status s = read_sizes(m->gguf, &m->shape, why);

    if (s == ST_OK)
        s = read_heads(m->gguf, &m->shape, why);
    if (s == ST_OK)
        s = read_rope_and_norm(m->gguf, &m->shape, why);
    return s == ST_OK ? read_vocab(m, why) : s;
}

/* Which tensors the model has taken: what remains in the file is refused. */
struct binding {
    const struct gguf *gguf;
    bool *taken; /* by tensor index */
    struct reason *why;
};

/* Finds a matrix (rows, cols), or a vector (cols) where rows is 0. */
static enum status bind_tensor(struct binding *b, const char *name, uint32_t rows, uint32_t cols,
                               const struct tensor **out)
{
    const struct tensor *t = gguf_tensor(b->gguf, name);
    uint32_t n_dims = rows == 0 ? 1 : 2;

    if (t == NULL)
        return fail(b->why, ST_CORRUPT, "the file lacks the tensor %s", name);
    if (t->n_dims != n_dims || t->dims[0] != cols || (rows != 0 && t->dims[1] != rows))
        return fail(b->why, ST_CORRUPT, "tensor %s has the shape (%llu, %llu), not (%u, %u)", name,
                    (unsigned long long)t->dims[1], (unsigned long long)t->dims[0],
                    rows == 0 ? 1 : rows, cols);
    if (rows == 0 && t->type != TENSOR_F32)
        return fail(b->why, ST_UNSUPPORTED, "tensor %s has type %s; norms must be F32", name,
                    tensor_type_name(t->type));
    b->taken[t - gguf_tensor_at(b->gguf, 0)] = true;
    *out = t;
    return ST_OK;
}

static enum status bind_layer(struct binding *b, const struct model_shape *p, uint32_t layer,
                              struct model_layer *l)
{
    const uint32_t q = p->n_heads * p->head_dim, kv = p->n_kv_heads * p->head_dim;
    const struct {
        const char *suffix;
        uint32_t rows, cols;
        const struct tensor **out;
    } table[] = {
        {"attn_norm", 0, p->n_embd, &l->attn_norm},     {"attn_q", q, p->n_embd, &l->attn_q},
        {"attn_k", kv, p->n_embd, &l->attn_k},          {"attn_v", kv, p->n_embd, &l->attn_v},
        {"attn_output", p->n_embd, q, &l->attn_output}, {"ffn_norm", 0, p->n_embd, &l->ffn_norm},
        {"ffn_gate", p->n_ff, p->n_embd, &l->ffn_gate}, {"ffn_up", p->n_ff, p->n_embd, &l->ffn_up},
        {"ffn_down", p->n_embd, p->n_ff, &l->ffn_down},
    };
    char name[64];

    for (size_t i = 0; i < COUNT_OF(table); i++) {
        enum status s;

        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, table[i].suffix);
        s = bind_tensor(b, name, table[i].rows, table[i].cols, table[i].out);
        if (s != ST_OK)
            return s;
    }
    return ST_OK;
}

/* A tensor that we don't use would change the result of a program that does. */
static enum status refuse_leftovers(const struct binding *b)
{
    for (size_t i = 0; i < gguf_n_tensors(b->gguf); i++) {
        const char *name = gguf_tensor_at(b->gguf, i)->name;
        const char *dot = strrchr(name, '.');

        if (b->taken[i])
            continue;
        if (dot != NULL && strcmp(dot, ".bias") == 0)
            return fail(b->why, ST_UNSUPPORTED, "tensor %s: biases are not supported", name);
        if (strcmp(name, "rope_freqs.weight") == 0)
            return fail(b->why, ST_UNSUPPORTED,
                        "tensor %s: scaled RoPE frequencies are not supported", name);
        return fail(b->why, ST_UNSUPPORTED, "tensor %s is not part of a dense Llama model", name);
    }
    return ST_OK;
}

static enum status bind_all(struct model *m, struct binding *b)
{
    const struct model_shape *p = &m->shape;
    enum status s = bind_tensor(b, "token_embd.weight", p->n_vocab, p->n_embd, &m->token_embd);

    if (s == ST_OK)
        s = bind_tensor(b, "output_norm.weight", 0, p->n_embd, &m->output_norm);
    m->output = m->token_embd;
    if (s == ST_OK && gguf_tensor(m->gguf, "output.weight") != NULL)
        s = bind_tensor(b, "output.weight", p->n_vocab, p->n_embd, &m->output);
    for (uint32_t i = 0; i < p->n_layers && s == ST_OK; i++)
        s = bind_layer(b, p, i, &m->layers[i]);
    return s == ST_OK ? refuse_leftovers(b) : s;
}

static enum status bind_tensors(struct model *m, struct reason *why)
{
    struct binding b = {.gguf = m->gguf, .why = why};
    enum status s;

    m->layers = calloc(m->shape.n_layers, sizeof *m->layers);
    b.taken = calloc(gguf_n_tensors(m->gguf) + 1, sizeof *b.taken);
    if (m->layers == NULL || b.taken == NULL)
        s = fail(why, ST_NO_MEMORY, "out of memory for the layer table");
    else
        s = bind_all(m, &b);
    free(b.taken);
    return s;
}

/* general.name for logs and listings: printable, cut at a character. */
static void read_name(struct model *m)
{
    struct gguf_string name = {"", 0};
    size_t n = 0;

    (void)gguf_get_string(m->gguf, "general.name", &name);
    for (size_t i = 0; i < name.len;) {
        uint32_t cp = 0;
        int len = utf8_decode(name.data + i, name.len - i, &cp);

        if (len > 0 && cp >= 0x20 && cp != 0x7F && !(cp >= 0x80 && cp < 0xA0)) {
            if (n + (size_t)len >= sizeof m->name)
                break;
            memcpy(m->name + n, name.data + i, (size_t)len);
            n += (size_t)len;
        }
        i += len > 0 ? (size_t)len : 1;
    }
    m->name[n] = 0;
}

static enum status check_and_bind(struct model *m, struct reason *why)
{
    enum status s = model_check_keys(m->gguf, why);

    if (s == ST_OK)
        s = read_shape(m, why);
    if (s == ST_OK)
        s = bind_tensors(m, why);
    if (s != ST_OK)
        return s;
    read_name(m);
    return model_hash(m->gguf, m->revision, why);
}

/* Takes over g. */
static enum status open_gguf(struct gguf *g, struct model **out, struct reason *why)
{
    struct model *m = calloc(1, sizeof *m);
    enum status s;

    if (m == NULL) {
        gguf_close(g);
        return fail(why, ST_NO_MEMORY, "out of memory");
    }
    m->gguf = g;
    s = check_and_bind(m, why);
    if (s != ST_OK) {
        model_close(m);
        return s;
    }
    *out = m;
    return ST_OK;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum status model_open(const char *path, struct model **out, struct reason *why)
{
    struct gguf *g = NULL;
    enum status s = is_folder(path) ? hf_open(path, &g, why) : gguf_open(path, &g, why);

    return s == ST_OK ? open_gguf(g, out, why) : s;
}

enum status model_open_memory(const void *data, size_t len, struct model **out, struct reason *why)
{
    struct gguf *g = NULL;
    enum status s = gguf_open_memory(data, len, &g, why);

    return s == ST_OK ? open_gguf(g, out, why) : s;
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    gguf_close(m->gguf);
    free(m->layers);
    free(m);
}
