#include "engine/generation_defaults.h"

#include <stdbool.h>

#include "base/log.h"
#include "engine/model/gguf.h"

/* 0 is a value of its own for some, and beyond the range of others. */
static float read_f32(const struct gguf *g, const char *key, bool allows_0, float max)
{
    float v;

    if (!gguf_get_f32(g, key, &v))
        return -1;
    if (v <= max && (v > 0 || (allows_0 && v >= 0)))
        return v;
    log_warn(NULL, "model.defaults", "%s is out of range and ignored", key);
    return -1;
}

static int32_t read_top_k(const struct gguf *g)
{
    static const char key[] = "general.sampling.top_k";
    uint32_t v;

    if (!gguf_get_u32(g, key, &v))
        return -1;
    if (v <= INT32_MAX)
        return (int32_t)v;
    log_warn(NULL, "model.defaults", "%s is out of range and ignored", key);
    return -1;
}

void generation_defaults_read(const struct gguf *g, struct engine_defaults *out)
{
    *out = (struct engine_defaults){
        .temperature = read_f32(g, "general.sampling.temp", true, 2),
        .top_p = read_f32(g, "general.sampling.top_p", false, 1),
        .min_p = read_f32(g, "general.sampling.min_p", true, 1),
        .repetition_penalty = read_f32(g, "general.sampling.penalty_repeat", false, 2),
        .top_k = read_top_k(g),
    };
}
