/* Metadata that decides what is computed. Every key of the architecture is in a table here or is
 * refused: a key that we don't know may be the one that changes the mathematics. */
#include <string.h>

#include "base/size.h"
#include "engine/model/model_file.h"

enum rule {
    ANY,      /* a size that model.c reads, or of no consequence */
    ZERO,     /* a feature that 0 (or false) turns off */
    UNSCALED, /* a factor: 0 (unset) or 1 */
    TRUE,
    NONE, /* the string "none" */
};

static const struct {
    const char *key;
    enum rule rule;
} rules[] = {
    {"llama.block_count", ANY},
    {"llama.context_length", ANY},
    {"llama.embedding_length", ANY},
    {"llama.feed_forward_length", ANY},
    {"llama.vocab_size", ANY},
    {"llama.attention.head_count", ANY},
    {"llama.attention.head_count_kv", ANY},
    {"llama.attention.key_length", ANY},
    {"llama.attention.value_length", ANY},
    {"llama.attention.layer_norm_rms_epsilon", ANY},
    {"llama.attention.causal", TRUE},
    {"llama.attention.sliding_window", ZERO},
    {"llama.attention.max_alibi_bias", ZERO},
    {"llama.attention.clamp_kqv", ZERO},
    {"llama.rope.dimension_count", ANY},
    {"llama.rope.freq_base", ANY},
    {"llama.rope.scale_linear", UNSCALED},
    {"llama.rope.scaling.type", NONE},
    {"llama.rope.scaling.factor", UNSCALED},
    {"llama.rope.scaling.attn_factor", UNSCALED},
    {"llama.expert_count", ZERO},
    {"llama.expert_used_count", ZERO},
    {"llama.use_parallel_residual", ZERO},
};

/* A number or boolean; false for other types. */
static bool get_number(const struct gguf *g, const char *key, float *out)
{
    uint32_t whole;
    bool b;

    if (gguf_get_f32(g, key, out))
        return true;
    if (gguf_get_u32(g, key, &whole)) {
        *out = (float)whole;
        return true;
    }
    if (!gguf_get_bool(g, key, &b))
        return false;
    *out = b;
    return true;
}

static bool is_string(const struct gguf *g, const char *key, const char *want)
{
    struct gguf_string s;

    return gguf_get_string(g, key, &s) && s.len == strlen(want) && memcmp(s.data, want, s.len) == 0;
}

static bool obeys(const struct gguf *g, const char *key, enum rule rule)
{
    float v = 0.0f;
    bool b;

    switch (rule) {
    case ANY:
        return true;
    case ZERO:
        return get_number(g, key, &v) && v == 0.0f;
    case UNSCALED:
        return get_number(g, key, &v) && (v == 0.0f || v == 1.0f);
    case TRUE:
        return gguf_get_bool(g, key, &b) && b;
    case NONE:
        return is_string(g, key, "none");
    }
    return false;
}

static bool is_allowed(const struct gguf *g, const char *key)
{
    for (size_t i = 0; i < COUNT_OF(rules); i++)
        if (strcmp(rules[i].key, key) == 0)
            return obeys(g, key, rules[i].rule);
    return false;
}

/* A copy for messages: what is not printable ASCII becomes '?'. */
static void printable(struct gguf_string s, char *out, size_t size)
{
    size_t n = s.len < size - 1 ? s.len : size - 1;

    for (size_t i = 0; i < n; i++)
        out[i] = s.data[i] >= 0x20 && s.data[i] < 0x7F ? s.data[i] : '?';
    out[n] = 0;
}

static enum status check_architecture(const struct gguf *g, struct reason *why)
{
    const char *key = "general.architecture";
    struct gguf_string s;
    char name[64];

    if (!gguf_get_string(g, key, &s))
        return fail_param(why, ST_CORRUPT, key, "the file names no architecture");
    printable(s, name, sizeof name);
    if (strcmp(name, "llama") != 0)
        return fail_param(why, ST_UNSUPPORTED, key, "architecture %s; only llama is supported",
                          name);
    if (gguf_has(g, "general.type") && !is_string(g, "general.type", "model"))
        return fail_param(why, ST_UNSUPPORTED, "general.type",
                          "the file is no model, but a part "
                          "or an adapter of one (general.type)");
    return ST_OK;
}

enum status model_check_keys(const struct gguf *g, struct reason *why)
{
    enum status s = check_architecture(g, why);
    enum gguf_type type;
    const char *key;

    if (s != ST_OK)
        return s;
    for (size_t i = 0; (key = gguf_key(g, i, &type)) != NULL; i++)
        if (strncmp(key, "llama.", 6) == 0 && !is_allowed(g, key))
            return fail_param(why, ST_UNSUPPORTED, key,
                              "%.200s has a value that asks for something not supported", key);
    return ST_OK;
}
