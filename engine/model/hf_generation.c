#include "engine/model/hf_generation.h"

#include "base/size.h"

static const char file_name[] = "generation_config.json";

static bool is_absent(struct hf_span v)
{
    return v.text == NULL || hf_span_is(v, "null");
}

static enum status wrong(const char *key, struct reason *why)
{
    return fail_param(why, ST_CORRUPT, key, "%s: %s has a wrong type", file_name, key);
}

static enum status put_number(struct hf_meta *m, const char *key, const char *gguf_key,
                              struct hf_span v, struct reason *why)
{
    struct hf_json j;
    double x;

    if (is_absent(v))
        return ST_OK;
    hf_json_init(&j, v.text, v.len);
    if (!hf_json_number(&j, &x) || !hf_json_end(&j))
        return wrong(key, why);
    hf_meta_f32(m, gguf_key, (float)x);
    return ST_OK;
}

/* Some write -1 where transformers has 0: off. */
static enum status put_top_k(struct hf_meta *m, struct hf_span v, struct reason *why)
{
    struct hf_json j;
    double x;

    if (is_absent(v))
        return ST_OK;
    hf_json_init(&j, v.text, v.len);
    if (!hf_json_number(&j, &x) || !hf_json_end(&j) || x < -1 || x > INT32_MAX)
        return wrong("top_k", why);
    hf_meta_u32(m, "general.sampling.top_k", x > 0 ? (uint32_t)x : 0);
    return ST_OK;
}

enum status hf_generation_put(struct hf_span text, struct hf_meta *m, struct reason *why)
{
    struct hf_span do_sample, temperature, top_p, top_k, min_p, penalty;
    const struct hf_pick picks[] = {
        {"do_sample", &do_sample}, {"temperature", &temperature},
        {"top_p", &top_p},         {"top_k", &top_k},
        {"min_p", &min_p},         {"repetition_penalty", &penalty},
    };
    enum status s;

    if (text.text == NULL)
        return ST_OK;
    s = hf_json_pick(text, picks, COUNT_OF(picks), file_name, why);
    if (s == ST_OK && hf_span_is(do_sample, "false"))
        hf_meta_f32(m, "general.sampling.temp", 0);
    else if (s == ST_OK)
        s = put_number(m, "temperature", "general.sampling.temp", temperature, why);
    if (s == ST_OK)
        s = put_number(m, "top_p", "general.sampling.top_p", top_p, why);
    if (s == ST_OK)
        s = put_number(m, "min_p", "general.sampling.min_p", min_p, why);
    if (s == ST_OK)
        s = put_number(m, "repetition_penalty", "general.sampling.penalty_repeat", penalty, why);
    return s == ST_OK ? put_top_k(m, top_k, why) : s;
}
