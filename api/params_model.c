#include "api/params_model.h"

#include <inttypes.h>

#include "base/id.h"
#include "base/size.h"

static bool refuse_id(const char *field, int32_t id, const struct engine_revision *r,
                      struct api_error *e)
{
    return error_set(e, ERROR_VALUE, field,
                     "Invalid value for '%s': the model has no token %" PRId32
                     "; ids go from 0 to %" PRIu32 ".",
                     field, id, r->n_vocab - 1);
}

bool params_check_model(const struct params *p, const struct engine_revision *r,
                        struct api_error *e)
{
    for (uint32_t i = 0; i < p->n_bias; i++)
        if ((uint32_t)p->bias[i].id >= r->n_vocab)
            return refuse_id("logit_bias", p->bias[i].id, r, e);
    for (uint32_t i = 0; i < p->n_stop_ids; i++)
        if ((uint32_t)p->stop_ids[i] >= r->n_vocab)
            return refuse_id("stop_token_ids", p->stop_ids[i], r, e);
    if (p->n_choices > r->choices_max)
        return error_set(e, ERROR_VALUE, "n",
                         "Invalid value for 'n': the engine's queue takes at most %" PRIu32
                         " choices of a request.",
                         r->choices_max);
    if (p->max_tokens > r->context_tokens)
        return error_set(e, ERROR_VALUE, p->max_field,
                         "Invalid value for '%s': the model's context has %u tokens.", p->max_field,
                         r->context_tokens);
    if (p->min_tokens > r->context_tokens)
        return error_set(e, ERROR_VALUE, "min_tokens",
                         "Invalid value for 'min_tokens': the model's context has %u tokens.",
                         r->context_tokens);
    return true;
}

void params_use_defaults(struct params *p, const struct engine_defaults *d)
{
    const struct {
        unsigned bit;
        float value; /* < 0: none */
        double *field;
    } reals[] = {
        {GIVEN_TEMPERATURE, d->temperature, &p->temperature},
        {GIVEN_TOP_P, d->top_p, &p->top_p},
        {GIVEN_MIN_P, d->min_p, &p->min_p},
        {GIVEN_REPETITION, d->repetition_penalty, &p->repetition_penalty},
    };

    for (size_t i = 0; i < COUNT_OF(reals); i++)
        if ((p->given & reals[i].bit) == 0 && reals[i].value >= 0)
            *reals[i].field = (double)reals[i].value;
    if ((p->given & GIVEN_TOP_K) == 0 && d->top_k >= 0)
        p->top_k = d->top_k;
}

static uint64_t seed_of(const struct params *p)
{
    uint64_t seed;

    if (p->has_seed)
        return (uint64_t)p->seed;
    random_bytes(&seed, sizeof seed);
    return seed;
}

void params_sampling(const struct params *p, struct sampling *out)
{
    /* top_p 0, or what is 0 as a float, leaves the most probable token alone: the greedy choice,
     * which is temperature 0. The engine takes no top_p of 0. */
    const bool is_greedy = !((float)p->top_p > 0);

    *out = (struct sampling){
        .temperature = is_greedy ? 0.0F : (float)p->temperature,
        .top_p = is_greedy ? 1.0F : (float)p->top_p,
        .top_k = (int32_t)p->top_k,
        .min_p = (float)p->min_p,
        .repetition_penalty = (float)p->repetition_penalty,
        .frequency_penalty = (float)p->frequency_penalty,
        .presence_penalty = (float)p->presence_penalty,
        .min_tokens = (uint32_t)p->min_tokens,
        .seed = seed_of(p),
        .bias = p->bias,
        .n_bias = p->n_bias,
        .want_logprobs = p->logprobs,
        .top_logprobs = (uint32_t)p->top_logprobs,
        .want_prompt_logprobs = p->logprobs && p->echo,
    };
}
