#include "api/param_field.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BIAS_MIN (-100.0) /* as OpenAI */
#define BIAS_MAX 100.0

bool param_take_seed(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    p->has_seed = true;
    return param_int(f, v, &p->seed, e);
}

bool param_take_top_k(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    if (!param_int(f, v, &p->top_k, e))
        return false;
    if (p->top_k == -1) /* vLLM's way to say: off */
        p->top_k = 0;
    return true;
}

/* It divides logits: 0, also as the float that the engine gets, is no penalty. */
bool param_take_repetition(const struct param_field *f, json_t *v, struct params *p,
                           struct api_error *e)
{
    if (!param_real(f, v, &p->repetition_penalty, e))
        return false;
    if ((float)p->repetition_penalty > 0)
        return true;
    return error_set(e, ERROR_VALUE, f->name, "Invalid value for '%s': expected more than 0.",
                     f->name);
}

/* A token id as JSON's keys have it: decimal digits, the shortest way, so that no two keys are one
 * id. -1: it is none. */
static int32_t id_of_key(const char *key)
{
    size_t len = strspn(key, "0123456789");
    long long id;

    if (len == 0 || len > 10 || key[len] != '\0' || (key[0] == '0' && len > 1))
        return -1;
    id = strtoll(key, NULL, 10);
    return id <= INT32_MAX ? (int32_t)id : -1;
}

static bool add_bias(const struct param_field *f, const char *key, const json_t *v,
                     struct params *p, struct api_error *e)
{
    int32_t id = id_of_key(key);
    double bias = json_number_value(v);

    if (id < 0)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': a key is not a token id in decimal.", f->name);
    if (!json_is_number(v))
        return param_wrong_type(f, "numbers by token id", v, e);
    if (!(bias >= BIAS_MIN && bias <= BIAS_MAX))
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': expected numbers from %g to %g.", f->name,
                         BIAS_MIN, BIAS_MAX);
    p->bias[p->n_bias++] = (struct logit_bias){id, (float)bias};
    return true;
}

bool param_take_logit_bias(const struct param_field *f, json_t *v, struct params *p,
                           struct api_error *e)
{
    const char *key;
    const json_t *one;

    if (!json_is_object(v))
        return param_wrong_type(f, "an object", v, e);
    if (json_object_size(v) > LOGIT_BIAS_MAX)
        return error_set(e, ERROR_VALUE, f->name, "Invalid value for '%s': at most %d entries.",
                         f->name, LOGIT_BIAS_MAX);
    if (json_object_size(v) == 0)
        return true;
    p->bias = calloc(json_object_size(v), sizeof *p->bias);
    if (p->bias == NULL)
        return error_set(e, ERROR_OVERLOADED, "", "%s", "");
    json_object_foreach(v, key, one)
    {
        if (!add_bias(f, key, one, p, e))
            return false;
    }
    return true;
}

bool param_take_stop_ids(const struct param_field *f, json_t *v, struct params *p,
                         struct api_error *e)
{
    size_t i;
    const json_t *one;

    if (!json_is_array(v))
        return param_wrong_type(f, "an array of token ids", v, e);
    if (json_array_size(v) > STOP_IDS_MAX)
        return error_set(e, ERROR_VALUE, f->name, "Invalid value for '%s': at most %d token ids.",
                         f->name, STOP_IDS_MAX);
    json_array_foreach(v, i, one)
    {
        int64_t id = 0;

        if (!param_int(f, one, &id, e))
            return false;
        p->stop_ids[p->n_stop_ids++] = (int32_t)id;
    }
    return true;
}

bool param_take_logprobs(const struct param_field *f, json_t *v, struct params *p,
                         struct api_error *e)
{
    p->logprobs = true;
    return param_int(f, v, &p->top_logprobs, e);
}

bool params_check_together(enum endpoint endpoint, const struct params *p, struct api_error *e)
{
    if (endpoint == ENDPOINT_CHAT && p->top_logprobs > 0 && !p->logprobs)
        return error_set(e, ERROR_VALUE, "top_logprobs",
                         "'top_logprobs' is only allowed when 'logprobs' is true.");
    if (p->max_tokens >= 0 && p->min_tokens > p->max_tokens)
        return error_set(e, ERROR_VALUE, "min_tokens",
                         "'min_tokens' is %" PRId64 ", but '%s' is %" PRId64 ".", p->min_tokens,
                         p->max_field, p->max_tokens);
    if (p->max_tokens == 0 && !p->echo)
        return error_set(e, ERROR_VALUE, p->max_field, "'%s' may be 0 only when 'echo' is true.",
                         p->max_field);
    /* Drawing more than are returned, and returning the best, is not supported. */
    if (p->best_of != 0 && p->best_of != p->n_choices)
        return error_set(e, ERROR_UNSUPPORTED, "best_of",
                         "'best_of' is not supported with another value than that of 'n'.");
    return true;
}
