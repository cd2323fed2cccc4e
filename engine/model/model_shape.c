/* Sizes and factors from the metadata, each checked. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "engine/model/model_file.h"

/* Far above any dense model (405B: 126 layers, width 16384, 128 heads), and small enough that no
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
#define YARN_FAST_DEFAULT 32.0f
#define YARN_SLOW_DEFAULT 1.0f

/* A reading of one file: the first failure stays, and later reads do nothing. */
struct shape_reader {
    const struct gguf *gguf;
    const struct arch *arch;
    struct reason *why;
    enum status status;
};

/* A number from 1 to max; *out keeps what it has where the file lacks the key. */
static void read_optional_size(struct shape_reader *r, const char *suffix, uint32_t max,
                               uint32_t *out)
{
    char key[MODEL_KEY_MAX];
    uint32_t v;

    model_key(r->arch, suffix, key);
    if (r->status != ST_OK || !gguf_has(r->gguf, key))
        return;
    if (!gguf_get_u32(r->gguf, key, &v) || v == 0 || v > max)
        r->status =
            fail_param(r->why, ST_UNSUPPORTED, key, "%s is not one number from 1 to %u", key, max);
    else
        *out = v;
}

static void read_size(struct shape_reader *r, const char *suffix, uint32_t max, uint32_t *out)
{
    char key[MODEL_KEY_MAX];

    model_key(r->arch, suffix, key);
    if (r->status == ST_OK && !gguf_has(r->gguf, key))
        r->status = fail_param(r->why, ST_CORRUPT, key, "the file lacks %s", key);
    read_optional_size(r, suffix, max, out);
}

/* A finite number from min on; *out keeps what it has where the file lacks the key, or says 0 (not
 * set) and 0 is below min. */
static void read_factor(struct shape_reader *r, const char *suffix, float min, float *out)
{
    char key[MODEL_KEY_MAX];
    float v;

    model_key(r->arch, suffix, key);
    if (r->status != ST_OK || !gguf_has(r->gguf, key))
        return;
    if (!gguf_get_f32(r->gguf, key, &v) || !isfinite(v) || (v != 0.0f && v < min))
        r->status = fail_param(r->why, ST_CORRUPT, key, "%s is not a finite number from %g", key,
                               (double)min);
    else if (v != 0.0f || min <= 0.0f)
        *out = v;
}

static void read_sizes(struct shape_reader *r, struct model_shape *p)
{
    read_size(r, "block_count", LAYERS_MAX, &p->n_layers);
    read_size(r, "embedding_length", WIDTH_MAX, &p->n_embd);
    read_size(r, "attention.head_count", HEADS_MAX, &p->n_heads);
    read_size(r, "feed_forward_length", FF_MAX, &p->n_ff);
    read_size(r, "context_length", CONTEXT_MAX, &p->context_tokens);
    p->n_kv_heads = p->n_heads;
    read_optional_size(r, "attention.head_count_kv", HEADS_MAX, &p->n_kv_heads);
}

/* A head is n_embd / n_heads wide unless the file says otherwise; keys and values alike. */
static void read_heads(struct shape_reader *r, struct model_shape *p)
{
    char key[MODEL_KEY_MAX];
    uint32_t value_dim;

    if (r->status != ST_OK)
        return;
    model_key(r->arch, "attention.key_length", key);
    if (p->n_heads % p->n_kv_heads != 0)
        r->status = fail(r->why, ST_CORRUPT, "%u query heads can't share %u KV heads", p->n_heads,
                         p->n_kv_heads);
    else if (!gguf_has(r->gguf, key) && p->n_embd % p->n_heads != 0)
        r->status = fail(r->why, ST_CORRUPT, "a width of %u can't be cut into %u heads", p->n_embd,
                         p->n_heads);
    p->head_dim = value_dim = p->n_embd / p->n_heads;
    read_optional_size(r, "attention.key_length", HEAD_DIM_MAX, &p->head_dim);
    read_optional_size(r, "attention.value_length", HEAD_DIM_MAX, &value_dim);
    if (r->status == ST_OK && value_dim != p->head_dim)
        r->status = fail(r->why, ST_UNSUPPORTED,
                         "keys of %u and values of %u dimensions: only equal ones are supported",
                         p->head_dim, value_dim);
}

static void read_norm(struct shape_reader *r, struct model_shape *p)
{
    char key[MODEL_KEY_MAX];

    if (r->status != ST_OK)
        return;
    model_key(r->arch, "attention.layer_norm_rms_epsilon", key);
    if (!gguf_get_f32(r->gguf, key, &p->norm_eps) || !(p->norm_eps > 0.0f && p->norm_eps < 1.0f))
        r->status = fail_param(r->why, ST_CORRUPT, key, "%s is absent or not between 0 and 1", key);
    (void)gguf_get_f32(r->gguf, "sluice.norm.offset", &p->norm_offset);
    if (!isfinite(p->norm_offset))
        r->status = fail(r->why, ST_CORRUPT, "sluice.norm.offset is not finite");
}

static void read_scales(struct shape_reader *r, struct model_shape *p)
{
    const struct arch *a = r->arch;

    if (r->status != ST_OK)
        return;
    p->embedding_scale = a->embedding_width ? sqrtf((float)p->n_embd) : 1.0f;
    p->attention_scale = 1.0f / sqrtf((float)(a->width_scaled == p->n_layers && a->width_scaled != 0
                                                  ? p->n_embd / p->n_heads
                                                  : p->head_dim));
    p->residual_scale = p->logit_scale = 1.0f;
    p->attention_cap = a->attention_cap;
    p->logit_cap = a->logit_cap;
    read_factor(r, "embedding_scale", 1e-6f, &p->embedding_scale);
    read_factor(r, "attention.scale", 1e-6f, &p->attention_scale);
    read_factor(r, "residual_scale", 1e-6f, &p->residual_scale);
    read_factor(r, "logit_scale", 1e-6f, &p->logit_scale);
    read_factor(r, "attn_logit_softcapping", 0.0f, &p->attention_cap);
    read_factor(r, "final_logit_softcapping", 0.0f, &p->logit_cap);
    p->logit_scale = 1.0f / p->logit_scale; /* the files say by what logits are divided */
}

/* 0 turns the window off. */
static void read_window(struct shape_reader *r, struct model_shape *p)
{
    char key[MODEL_KEY_MAX];
    uint32_t v;

    p->window = r->arch->window;
    model_key(r->arch, "attention.sliding_window", key);
    if (r->status != ST_OK || !gguf_has(r->gguf, key))
        return;
    if (!r->arch->windows && !(gguf_get_u32(r->gguf, key, &v) && v == 0))
        r->status = fail_param(r->why, ST_UNSUPPORTED, key,
                               "%s: models of architecture %s with windows are not supported", key,
                               r->arch->name);
    else if (!gguf_get_u32(r->gguf, key, &p->window) || p->window > CONTEXT_MAX)
        r->status =
            fail_param(r->why, ST_CORRUPT, key, "%s is not one number up to %u", key, CONTEXT_MAX);
}

/* Files that give a factor and no type mean linear scaling. */
static void read_scaling_type(struct shape_reader *r, struct model_rope *p)
{
    static const struct {
        const char *name;
        enum rope_scaling scaling;
    } types[] = {
        {"none", ROPE_PLAIN},
        {"linear", ROPE_LINEAR},
        {"yarn", ROPE_YARN},
        {"longrope", ROPE_LONGROPE},
    };
    char key[MODEL_KEY_MAX];

    model_key(r->arch, "rope.scaling.type", key);
    p->scaling = p->factor != 1.0f ? ROPE_LINEAR : ROPE_PLAIN;
    if (r->status != ST_OK || !gguf_has(r->gguf, key))
        return;
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (model_key_is(r->gguf, key, types[i].name)) {
            p->scaling = types[i].scaling;
            return;
        }
    r->status = fail_param(
        r->why, ST_UNSUPPORTED, key,
        "%s is none of none, linear, yarn and longrope (dynamic scaling would change the "
        "frequencies of keys that are cached already)",
        key);
}

/* Divisors of the frequencies, one for each pair. */
static const struct tensor *find_divisors(struct shape_reader *r, const char *name, uint32_t n)
{
    const struct tensor *t = gguf_tensor(r->gguf, name);

    if (t == NULL || r->status != ST_OK)
        return NULL;
    if (t->n_dims != 1 || t->dims[0] != n || t->type != TENSOR_F32)
        r->status = fail(r->why, ST_CORRUPT, "tensor %s is not %u F32 numbers", name, n);
    for (uint32_t i = 0; i < n && r->status == ST_OK; i++)
        if (!(((const float *)t->data)[i] >= 1e-6f && isfinite(((const float *)t->data)[i])))
            r->status = fail(r->why, ST_CORRUPT, "tensor %s: number %u is no divisor", name, i);
    return t;
}

static void read_scaling(struct shape_reader *r, struct model_rope *p)
{
    p->factor = p->magnitude = p->ext_factor = 1.0f;
    p->beta_fast = YARN_FAST_DEFAULT;
    p->beta_slow = YARN_SLOW_DEFAULT;
    read_factor(r, "rope.scale_linear", 1e-3f, &p->factor); /* the next key's older spelling */
    read_factor(r, "rope.scaling.factor", 1e-3f, &p->factor);
    read_scaling_type(r, p);
    read_factor(r, "rope.scaling.attn_factor", 1e-3f, &p->magnitude);
    read_factor(r, "rope.scaling.yarn_ext_factor", 0.0f, &p->ext_factor);
    read_factor(r, "rope.scaling.yarn_beta_fast", 1e-3f, &p->beta_fast);
    read_factor(r, "rope.scaling.yarn_beta_slow", 1e-3f, &p->beta_slow);
    read_optional_size(r, "rope.scaling.original_context_length", CONTEXT_MAX,
                       &p->original_context);
    p->divisors = find_divisors(r, "rope_freqs.weight", p->dims / 2);
    p->short_divisors = find_divisors(r, "rope_factors_short.weight", p->dims / 2);
    p->long_divisors = find_divisors(r, "rope_factors_long.weight", p->dims / 2);
    if (p->short_divisors != NULL && p->long_divisors != NULL)
        p->scaling = ROPE_LONGROPE;
    if (r->status == ST_OK && p->scaling == ROPE_LONGROPE &&
        (p->short_divisors == NULL || p->long_divisors == NULL))
        r->status = fail(r->why, ST_CORRUPT, "LongRoPE without its two sets of factors");
    if (r->status == ST_OK && p->scaling == ROPE_YARN)
        p->magnitude *= 1.0f + 0.1f * logf(fmaxf(p->factor, 1.0f));
}

static void read_rope(struct shape_reader *r, struct model_shape *p)
{
    struct model_rope *rope = &p->rope;
    bool halves = false;

    if (r->status != ST_OK)
        return;
    rope->dims = p->head_dim;
    rope->base = ROPE_BASE_DEFAULT;
    rope->window_base = r->arch->window_base;
    rope->original_context = p->context_tokens;
    (void)gguf_get_bool(r->gguf, "sluice.rope.halves", &halves);
    rope->pairs = halves ? ROPE_HALVES : r->arch->rope_pairs;
    read_optional_size(r, "rope.dimension_count", p->head_dim, &rope->dims);
    if (r->status == ST_OK && rope->dims % 2 != 0)
        r->status =
            fail(r->why, ST_CORRUPT, "an odd number of rotated dimensions (%u)", rope->dims);
    read_factor(r, "rope.freq_base", 1.0f, &rope->base);
    read_factor(r, "rope.freq_base_swa", 1.0f, &rope->window_base);
    if (r->status == ST_OK)
        read_scaling(r, rope);
}

/* The vocabulary's size is the embedding's; what the metadata says must agree. */
static void read_vocab(struct shape_reader *r, struct model_shape *p)
{
    const struct tensor *t = gguf_tensor(r->gguf, "token_embd.weight");
    char key[MODEL_KEY_MAX];
    enum gguf_type type;
    uint32_t said;
    size_t n;

    if (r->status != ST_OK)
        return;
    if (t == NULL) {
        r->status = fail(r->why, ST_CORRUPT, "the file lacks the tensor token_embd.weight");
        return;
    }
    if (t->dims[1] > VOCAB_MAX) {
        r->status =
            fail(r->why, ST_UNSUPPORTED, "a vocabulary of %llu tokens; at most %u are supported",
                 (unsigned long long)t->dims[1], VOCAB_MAX);
        return;
    }
    said = p->n_vocab = (uint32_t)t->dims[1];
    model_key(r->arch, "vocab_size", key);
    if (gguf_has(r->gguf, key) && (!gguf_get_u32(r->gguf, key, &said) || said != p->n_vocab))
        r->status =
            fail(r->why, ST_CORRUPT, "%s differs from the embedding's %u rows", key, p->n_vocab);
    else if (gguf_array(r->gguf, "tokenizer.ggml.tokens", &type, &n) && n != p->n_vocab)
        r->status =
            fail(r->why, ST_CORRUPT, "%zu tokens but an embedding of %u rows", n, p->n_vocab);
}

enum status model_read_shape(struct model *m, struct reason *why)
{
    struct shape_reader r = {.gguf = m->gguf, .arch = m->arch, .why = why, .status = ST_OK};

    read_sizes(&r, &m->shape);
    read_heads(&r, &m->shape);
    read_norm(&r, &m->shape);
    read_scales(&r, &m->shape);
    read_window(&r, &m->shape);
    read_rope(&r, &m->shape);
    read_vocab(&r, &m->shape);
    return r.status;
}
