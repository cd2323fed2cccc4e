#include "engine/model/hf_config.h"

#include <math.h>
#include <string.h>

#include "base/printable.h"
#include "base/size.h"

/* The engine's own limits are tighter; these keep the arithmetic here small. */
#define SIZE_MAX_ANY     ((uint32_t)1 << 24)
#define HEAD_DIM_MAX_ANY 8192
/* The engine's own: a table is made of so many tokens, whatever the width of the embedding. */
#define VOCAB_MAX ((uint32_t)1 << 20)

enum rule {
    UNSET, /* absent, null, false, 0 or an empty list */
    TRUE,  /* absent, null or true */
};

/* Keys that change what a class computes, to which it has no answer here. */
static const struct {
    const char *key;
    enum rule rule;
    const char *what;
} rules[] = {
    {"quantization_config", UNSET, "quantized safetensors"},
    {"compression_config", UNSET, "compressed safetensors"},
    {"attention_bias", UNSET, "biases in attention"},
    {"mlp_bias", UNSET, "biases in feed-forward blocks"},
    {"use_bias", UNSET, "biases"},
    {"lm_head_bias", UNSET, "a bias of the output"},
    {"num_experts", UNSET, "mixture of experts"},
    {"num_local_experts", UNSET, "mixture of experts"},
    {"n_routed_experts", UNSET, "mixture of experts"},
    {"num_experts_per_tok", UNSET, "mixture of experts"},
    {"clip_qkv", UNSET, "clipped queries, keys and values"},
    {"alibi", UNSET, "ALiBi"},
    {"qk_layernorm", UNSET, "layer norms of queries and keys"},
    {"use_bidirectional_attention", UNSET, "attention to later tokens"},
    {"is_encoder_decoder", UNSET, "an encoder beside the decoder"},
    {"add_cross_attention", UNSET, "cross attention"},
    {"no_rope_layers", UNSET, "layers without RoPE"},
    {"use_parallel_residual", UNSET, "parallel residuals"},
    {"is_causal", TRUE, "attention to later tokens"},
};

static bool is_unset(const json_t *v)
{
    return v == NULL || json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

static void check_rules(struct hf_reader *r)
{
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        const json_t *v = json_object_get(r->object, rules[i].key);
        bool obeys =
            rules[i].rule == UNSET ? is_unset(v) : v == NULL || json_is_null(v) || json_is_true(v);

        if (!obeys)
            hf_refuse(r, ST_UNSUPPORTED, rules[i].key, "config.json: %s: %s: not supported",
                      rules[i].key, rules[i].what);
    }
}

static void check_activation(struct hf_reader *r, const struct hf_arch *a)
{
    const char *said = hf_word(r, a->activation_key, a->activation);
    char shown[64];

    if (strcmp(said, a->activation) == 0)
        return;
    printable(said, strlen(said), shown, sizeof shown);
    hf_refuse(r, ST_UNSUPPORTED, a->activation_key,
              "config.json: %s is %s; for %s only %s is supported", a->activation_key, shown,
              a->class_name, a->activation);
}

static enum status refuse_class(const char *name, struct reason *why)
{
    enum status s;
    struct buf known;
    char shown[64];

    printable(name, strlen(name), shown, sizeof shown);
    buf_init(&known);
    hf_arch_names(&known);
    s = fail_param(why, ST_UNSUPPORTED, "architectures",
                   "config.json: %s is not supported; these are: %s", shown, buf_cstr(&known));
    buf_dispose(&known);
    return s;
}

static enum status find_class(struct hf_config *c, struct reason *why)
{
    const json_t *list = json_object_get(c->root, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));

    if (name == NULL || json_array_size(list) != 1)
        return fail_param(why, ST_CORRUPT, "architectures",
                          "config.json: architectures is not a list of one name");
    c->arch = hf_arch_find(name);
    if (c->arch == NULL)
        return refuse_class(name, why);
    c->text = c->root;
    if (c->arch->nested)
        c->text = json_object_get(c->root, "text_config");
    if (!json_is_object(c->text))
        return fail_param(why, ST_CORRUPT, "text_config", "config.json has no text_config");
    return ST_OK;
}

static void read_sizes(struct hf_config *c, struct hf_reader *r)
{
    c->n_layers = hf_size(r, "num_hidden_layers", HF_REQUIRED, HF_LAYERS_MAX);
    c->n_embd = hf_size(r, "hidden_size", HF_REQUIRED, SIZE_MAX_ANY);
    c->n_ff = hf_size(r, "intermediate_size", HF_REQUIRED, SIZE_MAX_ANY);
    c->n_heads = hf_size(r, "num_attention_heads", HF_REQUIRED, SIZE_MAX_ANY);
    c->n_kv_heads = hf_size(r, "num_key_value_heads", c->n_heads, SIZE_MAX_ANY);
    c->n_vocab = hf_size(r, "vocab_size", HF_REQUIRED, VOCAB_MAX);
    c->context_tokens = hf_size(r, "max_position_embeddings", HF_REQUIRED, SIZE_MAX_ANY);
    c->norm_eps = hf_number(r, "rms_norm_eps", HF_REQUIRED);
    c->tied = hf_flag(r, "tie_word_embeddings", c->arch->tied);
    c->head_dim = hf_size(r, "head_dim", 0, HEAD_DIM_MAX_ANY);
    if (c->head_dim != 0 || r->status != ST_OK)
        return;
    if (c->n_heads == 0 || c->n_embd % c->n_heads != 0 || c->n_embd / c->n_heads > HEAD_DIM_MAX_ANY)
        hf_refuse(r, ST_CORRUPT, "num_attention_heads",
                  "config.json: a width of %u can't be cut into %u heads", c->n_embd, c->n_heads);
    else
        c->head_dim = c->n_embd / c->n_heads;
}

/* What the class says of a layer whose kind the config doesn't list. */
static bool class_windows(const struct hf_config *c, uint32_t layer, uint32_t bound)
{
    switch (c->arch->window) {
    case HF_WINDOW_ALL:
        return true;
    case HF_WINDOW_UPPER:
        return layer >= bound;
    case HF_WINDOW_ALTERNATE:
        return layer % 2 == 0;
    case HF_WINDOW_PERIOD:
        return (layer + 1) % bound != 0;
    case HF_WINDOW_NONE:
        break;
    }
    return false;
}

static void read_layer_types(struct hf_config *c, struct hf_reader *r, const json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) != c->n_layers) {
        hf_refuse(r, ST_CORRUPT, "layer_types", "config.json: layer_types doesn't list %u layers",
                  c->n_layers);
        return;
    }
    for (uint32_t i = 0; i < c->n_layers; i++) {
        const char *type = json_string_value(json_array_get(list, i));

        c->windowed[i] = type != NULL && strcmp(type, "sliding_attention") == 0;
        if (type == NULL || (!c->windowed[i] && strcmp(type, "full_attention") != 0))
            hf_refuse(r, ST_UNSUPPORTED, "layer_types",
                      "config.json: layer %u is neither full_attention nor sliding_attention", i);
    }
}

/* The layer from which, or the period in which, windows go. */
static uint32_t window_bound(const struct hf_config *c, struct hf_reader *r)
{
    const char *key = "_sliding_window_pattern";
    uint32_t bound = 0;

    if (c->arch->window == HF_WINDOW_UPPER)
        return hf_size(r, "max_window_layers", HF_REQUIRED, SIZE_MAX_ANY);
    if (c->arch->window != HF_WINDOW_PERIOD)
        return 0;
    if (hf_value(r, key) == NULL)
        key = "sliding_window_pattern";
    bound = hf_size(r, key, HF_REQUIRED, SIZE_MAX_ANY);
    if (bound == 0)
        hf_refuse(r, ST_CORRUPT, key, "config.json: %s is 0", key);
    return bound != 0 ? bound : 1;
}

static void read_window(struct hf_config *c, struct hf_reader *r)
{
    const json_t *list = hf_value(r, "layer_types");
    uint32_t bound;

    if (c->arch->window == HF_WINDOW_NONE ||
        (c->arch->window == HF_WINDOW_UPPER && !hf_flag(r, "use_sliding_window", false)))
        return;
    c->window = hf_size(r, "sliding_window", 0, SIZE_MAX_ANY);
    if (c->window == 0)
        return;
    if (list != NULL) {
        read_layer_types(c, r, list);
        return;
    }
    bound = window_bound(c, r);
    for (uint32_t i = 0; i < c->n_layers; i++)
        c->windowed[i] = class_windows(c, i, bound);
}

static enum status read_all(struct hf_config *c, struct reason *why)
{
    struct hf_reader r = {.why = why, .status = ST_OK}, root = r;
    enum status s = find_class(c, why);

    if (s != ST_OK)
        return s;
    r.object = c->text;
    r.defaults = c->arch->defaults;
    root.object = c->root;
    check_rules(&root);
    r.status = root.status;
    check_rules(&r);
    check_activation(&r, c->arch);
    read_sizes(c, &r);
    read_window(c, &r);
    if (r.status == ST_OK)
        hf_rope_read(&r, c->arch, c->head_dim, c->context_tokens, &c->rope);
    return r.status;
}

enum status hf_config_read(struct hf_config *c, const char *text, size_t len, struct reason *why)
{
    struct reason unwanted = {0}, detail = {0};
    enum status s;

    memset(c, 0, sizeof *c);
    if (why == NULL)
        why = &unwanted;
    s = json_parse(text, len, JSON_DEPTH_MAX, &c->root, &detail);
    if (s != ST_OK)
        return fail(why, ST_CORRUPT, "config.json: %.200s", detail.text);
    s = json_is_object(c->root) ? read_all(c, why)
                                : fail(why, ST_CORRUPT, "config.json is no object");
    if (s != ST_OK)
        hf_config_dispose(c);
    return s;
}

void hf_config_dispose(struct hf_config *c)
{
    json_decref(c->root);
    c->root = c->text = NULL;
}

/* Where the class has them, null means none: GGUF's silence would mean the architecture's usual. */
static void put_soft_caps(struct hf_reader *r, struct hf_meta *m)
{
    static const char *const keys[] = {"attn_logit_softcapping", "final_logit_softcapping"};

    for (size_t i = 0; i < COUNT_OF(keys); i++)
        hf_meta_arch_f32(m, keys[i], (float)hf_number(r, keys[i], 0));
}

static void put_multipliers(struct hf_reader *r, struct hf_meta *m)
{
    static const struct {
        const char *hf, *gguf;
    } keys[] = {
        {"embedding_multiplier", "embedding_scale"},
        {"attention_multiplier", "attention.scale"},
        {"residual_multiplier", "residual_scale"},
        {"logits_scaling", "logit_scale"},
    };

    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        double v = hf_number(r, keys[i].hf, 1);

        /* GGUF's readers take 0 for absent. */
        if (v < 1e-6)
            hf_refuse(r, ST_UNSUPPORTED, keys[i].hf, "config.json: %s is 0", keys[i].hf);
        hf_meta_arch_f32(m, keys[i].gguf, (float)v);
    }
}

static void put_query_scale(struct hf_reader *r, struct hf_meta *m)
{
    const char *key = "query_pre_attn_scalar";
    double v = hf_number(r, key, HF_REQUIRED);

    if (v < 1e-6)
        hf_refuse(r, ST_CORRUPT, key, "config.json: %s is no positive number", key);
    else
        hf_meta_arch_f32(m, "attention.scale", (float)(1 / sqrt(v)));
}

static void put_sizes(const struct hf_config *c, struct hf_meta *m)
{
    const struct {
        const char *name;
        uint32_t value;
    } sizes[] = {
        {"block_count", c->n_layers},
        {"context_length", c->context_tokens},
        {"embedding_length", c->n_embd},
        {"feed_forward_length", c->n_ff},
        {"attention.head_count", c->n_heads},
        {"attention.head_count_kv", c->n_kv_heads},
        {"attention.key_length", c->head_dim},
        {"attention.value_length", c->head_dim},
        {"vocab_size", c->n_vocab},
    };

    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        hf_meta_arch_u32(m, sizes[i].name, sizes[i].value);
    hf_meta_arch_f32(m, "attention.layer_norm_rms_epsilon", (float)c->norm_eps);
}

/* The last part of where it was trained or downloaded. The folder's own name would give the same
 * model another revision in another place. */
static void put_name(const struct hf_config *c, struct hf_meta *m)
{
    const char *path = json_string_value(json_object_get(c->root, "_name_or_path")), *slash;

    if (path == NULL)
        return;
    slash = strrchr(path, '/');
    if (slash != NULL)
        path = slash + 1;
    if (path[0] != 0)
        hf_meta_string(m, "general.name", path, strlen(path));
}

enum status hf_config_put(const struct hf_config *c, struct hf_meta *m, struct reason *why)
{
    struct reason unwanted = {0};
    struct hf_reader r = {.object = c->text,
                          .defaults = c->arch->defaults,
                          .why = why != NULL ? why : &unwanted,
                          .status = ST_OK};

    hf_meta_string(m, "general.architecture", c->arch->gguf, strlen(c->arch->gguf));
    put_name(c, m);
    put_sizes(c, m);
    if (c->arch->window != HF_WINDOW_NONE)
        hf_meta_arch_u32(m, "attention.sliding_window", c->window);
    if (c->window != 0)
        hf_meta_arch_bools(m, "attention.sliding_window_pattern", c->windowed, c->n_layers);
    hf_rope_put(&c->rope, m);
    if (c->arch->halves)
        hf_meta_bool(m, "sluice.rope.halves", true);
    if (c->arch->unit_norms)
        hf_meta_f32(m, "sluice.norm.offset", 1.0f);
    if (c->arch->soft_caps)
        put_soft_caps(&r, m);
    if (c->arch->query_scale)
        put_query_scale(&r, m);
    if (c->arch->multipliers)
        put_multipliers(&r, m);
    return r.status;
}
