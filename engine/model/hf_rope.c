#include "engine/model/hf_rope.h"

#include <math.h>
#include <string.h>

#include "base/printable.h"
#include "base/size.h"

#define BASE_DEFAULT 10000.0
/* The YaRN paper's, and transformers'. */
#define BETA_FAST_DEFAULT 32.0
#define BETA_SLOW_DEFAULT 1.0
/* Pairs of the widest heads that a model may have. */
#define PAIRS_MAX   4096
#define CONTEXT_MAX ((uint32_t)1 << 24)

/* The context that was trained before it was scaled. Phi-3 has the key beside the scaling. */
static void read_original(struct hf_reader *config, struct hf_reader *r, struct hf_rope *out,
                          double fallback)
{
    const char *key = "original_max_position_embeddings";
    struct hf_reader *where =
        hf_value(r, key) == NULL && hf_value(config, key) != NULL ? config : r;

    out->original_context = hf_size(where, key, fallback, CONTEXT_MAX);
    if (out->original_context == 0)
        hf_refuse(where, ST_CORRUPT, key, "config.json: %s is 0", key);
}

static double read_factor(struct hf_reader *r)
{
    double factor = hf_number(r, "factor", HF_REQUIRED);

    if (factor < 1.0)
        hf_refuse(r, ST_CORRUPT, "factor", "config.json: the RoPE scaling's factor is below 1");
    return factor;
}

static void read_linear(struct hf_reader *config, struct hf_reader *r, uint32_t context,
                        struct hf_rope *out)
{
    (void)config;
    (void)context;
    out->factor = read_factor(r);
}

static void read_llama3(struct hf_reader *config, struct hf_reader *r, uint32_t context,
                        struct hf_rope *out)
{
    (void)context;
    out->factor = read_factor(r);
    out->low_freq_factor = hf_number(r, "low_freq_factor", HF_REQUIRED);
    out->high_freq_factor = hf_number(r, "high_freq_factor", HF_REQUIRED);
    read_original(config, r, out, HF_REQUIRED);
    if (out->low_freq_factor <= 0 || out->high_freq_factor <= out->low_freq_factor)
        hf_refuse(r, ST_CORRUPT, "high_freq_factor",
                  "config.json: low_freq_factor is not between 0 and high_freq_factor");
}

/* GGUF's attn_factor comes on top of the length that YaRN gives by itself; transformers' replaces
 * it. */
static void read_yarn(struct hf_reader *config, struct hf_reader *r, uint32_t context,
                      struct hf_rope *out)
{
    double usual, given, mscale, mscale_all;

    read_original(config, r, out, context);
    out->factor =
        hf_value(r, "factor") != NULL ? read_factor(r) : (double)context / out->original_context;
    out->beta_fast = hf_number(r, "beta_fast", BETA_FAST_DEFAULT);
    out->beta_slow = hf_number(r, "beta_slow", BETA_SLOW_DEFAULT);
    if (out->beta_slow <= 0 || out->beta_fast < out->beta_slow)
        hf_refuse(r, ST_CORRUPT, "beta_fast", "config.json: beta_fast is below beta_slow");
    if (!hf_flag(r, "truncate", true))
        hf_refuse(r, ST_UNSUPPORTED, "truncate",
                  "config.json: YaRN without truncate is not supported");
    usual = out->factor > 1 ? 0.1 * log(out->factor) + 1 : 1;
    given = hf_number(r, "attention_factor", 0);
    mscale = hf_number(r, "mscale", 0);
    mscale_all = hf_number(r, "mscale_all_dim", 0);
    if (given == 0 && mscale != 0 && mscale_all != 0)
        given = out->factor > 1 ? (0.1 * mscale * log(out->factor) + 1) /
                                      (0.1 * mscale_all * log(out->factor) + 1)
                                : 1;
    out->attn_factor = given != 0 ? given / usual : 1;
}

static const json_t *read_divisors(struct hf_reader *r, const char *key, uint32_t n)
{
    json_t *list = hf_value(r, key);

    if (!json_is_array(list) || json_array_size(list) != n) {
        hf_refuse(r, ST_CORRUPT, key, "config.json: %s is not a list of %u numbers", key, n);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        double v = json_number_value(json_array_get(list, i));

        if (!isfinite(v) || v < 1e-6 || v > 1e12)
            hf_refuse(r, ST_CORRUPT, key, "config.json: %s has an element that is no divisor", key);
    }
    return list;
}

static void read_longrope(struct hf_reader *config, struct hf_reader *r, uint32_t context,
                          struct hf_rope *out)
{
    double ratio;

    if (hf_value(r, "short_mscale") != NULL || hf_value(r, "long_mscale") != NULL)
        hf_refuse(r, ST_UNSUPPORTED, "short_mscale",
                  "config.json: LongRoPE with short_mscale and long_mscale is not supported");
    read_original(config, r, out, context);
    out->long_divisors = read_divisors(r, "long_factor", out->dims / 2);
    out->short_divisors = read_divisors(r, "short_factor", out->dims / 2);
    ratio = out->original_context != context ? (double)context / out->original_context
                                             : hf_number(r, "factor", 1);
    out->attn_factor = hf_number(r, "attention_factor", 0);
    if (out->attn_factor == 0)
        out->attn_factor = ratio > 1 && out->original_context > 1
                               ? sqrt(1 + log(ratio) / log(out->original_context))
                               : 1;
}

/* `read` NULL: nothing to read. */
static const struct {
    const char *name;
    enum hf_scaling scaling;
    void (*read)(struct hf_reader *config, struct hf_reader *r, uint32_t context,
                 struct hf_rope *out);
} scalings[] = {
    {"default", HF_ROPE_PLAIN, NULL},
    {"linear", HF_ROPE_LINEAR, read_linear},
    {"llama3", HF_ROPE_LLAMA3, read_llama3},
    {"yarn", HF_ROPE_YARN, read_yarn},
    {"longrope", HF_ROPE_LONGROPE, read_longrope},
    {"su", HF_ROPE_LONGROPE, read_longrope},
};

static void read_scaling(struct hf_reader *config, struct hf_reader *r, uint32_t context,
                         struct hf_rope *out)
{
    const char *name = hf_word(r, "rope_type", hf_word(r, "type", "default"));
    char shown[64];

    for (size_t i = 0; i < COUNT_OF(scalings); i++) {
        if (strcmp(scalings[i].name, name) != 0)
            continue;
        out->scaling = scalings[i].scaling;
        if (scalings[i].read != NULL)
            scalings[i].read(config, r, context, out);
        return;
    }
    printable(name, strlen(name), shown, sizeof shown);
    if (strcmp(name, "dynamic") == 0)
        hf_refuse(
            r, ST_UNSUPPORTED, "rope_type",
            "config.json: dynamic NTK RoPE scaling is not supported: it changes the base with "
            "the length, so that keys which are cached already would be wrong");
    else
        hf_refuse(r, ST_UNSUPPORTED, "rope_type",
                  "config.json: RoPE scaling %s is not supported; these are: default, linear, "
                  "llama3, yarn, longrope",
                  shown);
}

/* Another object of the same config, with the same status. */
static struct hf_reader inside(const struct hf_reader *r, json_t *object)
{
    return (struct hf_reader){.object = object, .why = r->why, .status = r->status};
}

static void read_part(struct hf_reader *config, json_t *part, uint32_t context, struct hf_rope *out)
{
    struct hf_reader r = inside(config, part);

    read_scaling(config, &r, context, out);
    if (config->status == ST_OK)
        config->status = r.status;
}

/* The base of windowed layers, where there is a part for them; it must not be scaled. */
static void read_windowed(struct hf_reader *config, json_t *part, struct hf_rope *out)
{
    struct hf_reader r = inside(config, part);

    if (strcmp(hf_word(&r, "rope_type", "default"), "default") != 0)
        hf_refuse(&r, ST_UNSUPPORTED, "rope_type",
                  "config.json: RoPE scaling of sliding_attention layers is not supported");
    out->window_base = hf_number(&r, "rope_theta", HF_REQUIRED);
    if (config->status == ST_OK)
        config->status = r.status;
}

/* The new spelling. Returns the part that is for all layers, or for the global ones. */
static json_t *read_parameters(struct hf_reader *config, json_t *parameters, struct hf_rope *out)
{
    json_t *global = json_object_get(parameters, "full_attention"),
           *windowed = json_object_get(parameters, "sliding_attention");

    if (!json_is_object(global))
        return parameters;
    if (json_is_object(windowed))
        read_windowed(config, windowed, out);
    return global;
}

/* The share of a head that is rotated. */
static void read_dims(struct hf_reader *config, json_t *part, const struct hf_arch *arch,
                      uint32_t head_dim, struct hf_rope *out)
{
    const char *key = "partial_rotary_factor";
    struct hf_reader inner = inside(config, part);
    struct hf_reader *r = part != NULL && hf_value(&inner, key) != NULL ? &inner : config;
    double share = hf_number(r, key, 1);

    out->dims = (uint32_t)(head_dim * (share <= 1 ? share : 0));
    if (share != 1 && !arch->partial_rope)
        hf_refuse(config, ST_UNSUPPORTED, key, "config.json: %s is not supported for %s", key,
                  arch->class_name);
    if (out->dims < 2 || out->dims % 2 != 0 || out->dims / 2 > PAIRS_MAX)
        hf_refuse(config, ST_CORRUPT, key, "config.json: %u rotated dimensions of a head",
                  out->dims);
}

void hf_rope_read(struct hf_reader *r, const struct hf_arch *arch, uint32_t head_dim,
                  uint32_t context_tokens, struct hf_rope *out)
{
    json_t *parameters = hf_value(r, "rope_parameters"), *part = hf_value(r, "rope_scaling");
    struct hf_reader inner;

    *out = (struct hf_rope){.factor = 1, .attn_factor = 1};
    out->window_base = hf_number(r, "rope_local_base_freq", 0);
    out->base = hf_number(r, "rope_theta", BASE_DEFAULT);
    if (parameters != NULL && !json_is_object(parameters))
        hf_refuse(r, ST_CORRUPT, "rope_parameters", "config.json: rope_parameters is no object");
    if (json_is_object(parameters)) {
        part = read_parameters(r, parameters, out);
        inner = inside(r, part);
        out->base = hf_number(&inner, "rope_theta", out->base);
    }
    if (out->base < 1 || (out->window_base != 0 && out->window_base < 1))
        hf_refuse(r, ST_CORRUPT, "rope_theta", "config.json: rope_theta is below 1");
    read_dims(r, part, arch, head_dim, out);
    if (part != NULL && !json_is_object(part))
        hf_refuse(r, ST_CORRUPT, "rope_scaling", "config.json: rope_scaling is no object");
    if (part != NULL && r->status == ST_OK)
        read_part(r, part, context_tokens, out);
}

void hf_rope_put(const struct hf_rope *rope, struct hf_meta *m)
{
    static const char *const types[] = {
        [HF_ROPE_LINEAR] = "linear", [HF_ROPE_YARN] = "yarn", [HF_ROPE_LONGROPE] = "longrope"};

    hf_meta_arch_u32(m, "rope.dimension_count", rope->dims);
    hf_meta_arch_f32(m, "rope.freq_base", (float)rope->base);
    if (rope->window_base != 0)
        hf_meta_arch_f32(m, "rope.freq_base_swa", (float)rope->window_base);
    if (rope->scaling == HF_ROPE_PLAIN || rope->scaling == HF_ROPE_LLAMA3)
        return;
    hf_meta_arch_string(m, "rope.scaling.type", types[rope->scaling]);
    if (rope->scaling != HF_ROPE_LONGROPE)
        hf_meta_arch_f32(m, "rope.scaling.factor", (float)rope->factor);
    if (rope->scaling != HF_ROPE_LINEAR) {
        hf_meta_arch_u32(m, "rope.scaling.original_context_length", rope->original_context);
        hf_meta_arch_f32(m, "rope.scaling.attn_factor", (float)rope->attn_factor);
    }
    if (rope->scaling == HF_ROPE_YARN) {
        hf_meta_arch_f32(m, "rope.scaling.yarn_beta_fast", (float)rope->beta_fast);
        hf_meta_arch_f32(m, "rope.scaling.yarn_beta_slow", (float)rope->beta_slow);
    }
}

/* Llama 3's: short waves are kept, long ones divided by the factor, between them it changes over
 * smoothly in the wave's turns per original context. */
static float llama3_divisor(const struct hf_rope *r, uint32_t pair)
{
    double wave = 2 * M_PI * pow(r->base, 2.0 * pair / r->dims), turns = r->original_context / wave;
    double keep = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);

    if (keep >= 1)
        return 1.0f;
    return (float)(keep <= 0 ? r->factor : 1 / ((1 - keep) / r->factor + keep));
}

const char *hf_rope_tensor(const struct hf_rope *rope, size_t i, float *values)
{
    const json_t *list = i == 0 ? rope->long_divisors : rope->short_divisors;

    if (rope->scaling == HF_ROPE_LLAMA3 && i == 0) {
        for (uint32_t k = 0; k < rope->dims / 2; k++)
            values[k] = llama3_divisor(rope, k);
        return "rope_freqs.weight";
    }
    if (rope->scaling != HF_ROPE_LONGROPE || i > 1)
        return NULL;
    for (uint32_t k = 0; k < rope->dims / 2; k++)
        values[k] = (float)json_number_value(json_array_get(list, k));
    return i == 0 ? "rope_factors_long.weight" : "rope_factors_short.weight";
}
