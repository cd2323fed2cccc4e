/* Metadata that decides what is computed. Every key of the architecture is in a table here or is
 * refused: a key that we don't know may be the one that changes the mathematics. */
#include <stdio.h>
#include <string.h>

#include "base/printable.h"
#include "base/size.h"
#include "engine/model/model_file.h"

enum rule {
    ANY,      /* a size that model.c reads, or of no consequence */
    ZERO,     /* a feature that 0 (or false) turns off */
    UNSCALED, /* a factor: 0 (unset) or 1 */
    TRUE,
};

static const struct {
    const char *suffix; /* of the architecture's name and a dot */
    enum rule rule;
    const char *what; /* another value asks for */
} rules[] = {
    {"block_count", ANY, NULL},
    {"context_length", ANY, NULL},
    {"embedding_length", ANY, NULL},
    {"feed_forward_length", ANY, NULL},
    {"vocab_size", ANY, NULL},
    {"attention.head_count", ANY, NULL},
    {"attention.head_count_kv", ANY, NULL},
    {"attention.key_length", ANY, NULL},
    {"attention.value_length", ANY, NULL},
    {"attention.layer_norm_rms_epsilon", ANY, NULL},
    {"attention.scale", ANY, NULL},
    {"attention.sliding_window", ANY, NULL},
    {"attention.sliding_window_pattern", ANY, NULL},
    {"attention.causal", TRUE, "attention to later tokens"},
    {"attention.max_alibi_bias", ZERO, "ALiBi"},
    {"attention.clamp_kqv", ZERO, "clipped queries, keys and values"},
    {"attn_logit_softcapping", ANY, NULL},
    {"final_logit_softcapping", ANY, NULL},
    {"embedding_scale", ANY, NULL},
    {"residual_scale", ANY, NULL},
    {"logit_scale", ANY, NULL},
    {"rope.dimension_count", ANY, NULL},
    {"rope.freq_base", ANY, NULL},
    {"rope.freq_base_swa", ANY, NULL},
    {"rope.scale_linear", ANY, NULL},
    {"rope.scaling.type", ANY, NULL},
    {"rope.scaling.factor", ANY, NULL},
    {"rope.scaling.attn_factor", ANY, NULL},
    {"rope.scaling.original_context_length", ANY, NULL},
    {"rope.scaling.finetuned", ANY, NULL},
    {"rope.scaling.yarn_ext_factor", ANY, NULL},
    {"rope.scaling.yarn_beta_fast", ANY, NULL},
    {"rope.scaling.yarn_beta_slow", ANY, NULL},
    {"rope.scaling.yarn_attn_factor", UNSCALED, "a length of vectors that YaRN does not give"},
    {"rope.scaling.yarn_log_multiplier", ZERO, "a length of vectors that YaRN does not give"},
    {"expert_count", ZERO, "mixtures of experts"},
    {"expert_used_count", ZERO, "mixtures of experts"},
    {"use_parallel_residual", ZERO, "parallel residuals"},
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

bool model_key_is(const struct gguf *g, const char *key, const char *want)
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
    }
    return false;
}

static enum status check_key(const struct gguf *g, const char *key, const char *suffix,
                             struct reason *why)
{
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        if (strcmp(rules[i].suffix, suffix) != 0)
            continue;
        if (obeys(g, key, rules[i].rule))
            return ST_OK;
        return fail_param(why, ST_UNSUPPORTED, key, "%s: %s: not supported", key, rules[i].what);
    }
    return fail_param(why, ST_UNSUPPORTED, key,
                      "%.200s is no key that is known here: it may change what is computed", key);
}

void model_key(const struct arch *arch, const char *suffix, char key[MODEL_KEY_MAX])
{
    snprintf(key, MODEL_KEY_MAX, "%s.%s", arch->name, suffix);
}

static enum status refuse_architecture(struct gguf_string name, struct reason *why)
{
    const char *key = "general.architecture";
    enum status s;
    struct buf known;
    char text[64];

    printable(name.data, name.len, text, sizeof text);
    buf_init(&known);
    arch_names(&known);
    s = fail_param(why, ST_UNSUPPORTED, key, "architecture %s is not supported; these are: %s",
                   text, buf_cstr(&known));
    buf_dispose(&known);
    return s;
}

static enum status find_architecture(const struct gguf *g, const struct arch **arch,
                                     struct reason *why)
{
    const char *key = "general.architecture";
    struct gguf_string s;

    if (!gguf_get_string(g, key, &s))
        return fail_param(why, ST_CORRUPT, key, "the file names no architecture");
    *arch = arch_find(s.data, s.len);
    if (*arch == NULL)
        return refuse_architecture(s, why);
    if (gguf_has(g, "general.type") && !model_key_is(g, "general.type", "model"))
        return fail_param(why, ST_UNSUPPORTED, "general.type",
                          "the file is no model, but a part or an adapter of one (general.type)");
    return ST_OK;
}

enum status model_check_keys(const struct gguf *g, const struct arch **arch, struct reason *why)
{
    enum status s = find_architecture(g, arch, why);
    enum gguf_type type;
    const char *key;
    size_t len;

    if (s != ST_OK || *arch == NULL)
        return s;
    len = strlen((*arch)->name);
    for (size_t i = 0; (key = gguf_key(g, i, &type)) != NULL; i++)
        if (strncmp(key, (*arch)->name, len) == 0 && key[len] == '.' && s == ST_OK)
            s = check_key(g, key, key + len + 1, why);
    return s;
}
