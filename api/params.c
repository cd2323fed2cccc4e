#include "api/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/messages.h"
#include "api/param_field.h"
#include "base/json.h"
#include "base/size.h"

enum { CHAT = ENDPOINT_CHAT, COMP = ENDPOINT_COMPLETIONS, BOTH = CHAT | COMP };

static bool take_model(const struct param_field *f, json_t *v, struct params *p,
                       struct api_error *e)
{
    if (!json_is_string(v))
        return param_wrong_type(f, "a string", v, e);
    /* A name that no model can have; it must not reach a fixed-size record either. */
    if (json_string_length(v) > MODEL_NAME_BYTES_MAX)
        return error_set(e, ERROR_MODEL, f->name, "%s", "");
    p->model = json_string_value(v);
    return true;
}

static bool take_max_tokens(const struct param_field *f, json_t *v, struct params *p,
                            struct api_error *e)
{
    int64_t x = 0;

    if (!param_int(f, v, &x, e))
        return false;
    if (p->max_field != NULL && p->max_tokens != x)
        return error_set(e, ERROR_VALUE, f->name,
                         "'max_tokens' and 'max_completion_tokens' differ: give one of them.");
    p->max_tokens = x;
    p->max_field = f->name;
    return true;
}

static bool add_stop(const struct param_field *f, const json_t *v, struct params *p,
                     struct api_error *e)
{
    size_t len = json_string_length(v);

    if (!json_is_string(v))
        return param_wrong_type(f, "a string or an array of strings", v, e);
    if (len == 0 || len > STOP_STRING_BYTES_MAX)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': a stop string has 1 to %d bytes.", f->name,
                         STOP_STRING_BYTES_MAX);
    p->stops[p->n_stops++] = (struct engine_stop_string){json_string_value(v), len};
    return true;
}

static bool take_stop(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    size_t i;
    const json_t *one;

    if (!json_is_array(v))
        return add_stop(f, v, p, e);
    if (json_array_size(v) > STOP_STRINGS_MAX)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': at most %d stop strings.", f->name,
                         STOP_STRINGS_MAX);
    json_array_foreach(v, i, one)
    {
        if (!add_stop(f, one, p, e))
            return false;
    }
    return true;
}

/* Comes after `stream` in the table. */
static bool take_stream_options(const struct param_field *f, json_t *v, struct params *p,
                                struct api_error *e)
{
    static const struct param_field member = {.name = "stream_options.include_usage"};
    const json_t *usage;

    if (!json_is_object(v))
        return param_wrong_type(f, "an object", v, e);
    if (!p->stream)
        return error_set(e, ERROR_VALUE, f->name,
                         "'stream_options' is only allowed when 'stream' is true.");
    usage = json_object_get(v, "include_usage");
    if (usage == NULL || json_is_null(usage))
        return true;
    if (!json_is_boolean(usage))
        return param_wrong_type(&member, "a boolean", usage, e);
    p->include_usage = json_is_true(usage);
    return true;
}

/* Comes before `add_generation_prompt` in the table: a message that is to be continued needs no
 * other, unless the client asks for both, which the template refuses. */
static bool take_continue(const struct param_field *f, json_t *v, struct params *p,
                          struct api_error *e)
{
    if (!param_take_bool(f, v, p, e))
        return false;
    p->add_generation_prompt = !p->continue_final_message;
    return true;
}

/* What the template would get is not the number that the client wrote. */
static bool has_no_huge(const struct param_field *f, const json_t *v, struct api_error *e)
{
    return !json_has_huge(v) ||
           error_set(e, ERROR_VALUE, f->name,
                     "Invalid value for '%s': a number in it is too large.", f->name);
}

static bool take_documents(const struct param_field *f, json_t *v, struct params *p,
                           struct api_error *e)
{
    size_t i;
    const json_t *one;

    if (!json_is_array(v))
        return param_wrong_type(f, "an array of objects", v, e);
    if (!has_no_huge(f, v, e))
        return false;
    json_array_foreach(v, i, one)
    {
        char path[32];
        const struct param_field member = {.name = path};

        snprintf(path, sizeof path, "documents[%zu]", i);
        if (!json_is_object(one))
            return param_wrong_type(&member, "an object", one, e);
    }
    p->documents = v;
    return true;
}

/* Names that a template keeps for itself are refused where it is known. */
static bool take_template_kwargs(const struct param_field *f, json_t *v, struct params *p,
                                 struct api_error *e)
{
    if (!json_is_object(v))
        return param_wrong_type(f, "an object", v, e);
    if (json_object_size(v) > TEMPLATE_KWARGS_MAX ||
        json_dumpb(v, NULL, 0, JSON_COMPACT) > TEMPLATE_KWARGS_BYTES_MAX)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': at most %d members, and %d bytes as JSON.",
                         f->name, TEMPLATE_KWARGS_MAX, TEMPLATE_KWARGS_BYTES_MAX);
    if (!has_no_huge(f, v, e))
        return false;
    p->template_kwargs = v;
    return true;
}

/* A service tier of OpenAI's is a class of ours: flex, the cheap one there, waits behind all
 * others; the key's own class is the rest. */
static bool take_service_tier(const struct param_field *f, json_t *v, struct params *p,
                              struct api_error *e)
{
    const char *tier = json_string_value(v);

    if (tier == NULL)
        return param_wrong_type(f, "a string", v, e);
    p->is_flex = strcmp(tier, "flex") == 0;
    if (!p->is_flex && strcmp(tier, "auto") != 0 && strcmp(tier, "default") != 0)
        return param_unsupported(f, e);
    p->service_tier = p->is_flex ? "flex" : "default";
    return true;
}

#define FIELD(field_name, on, how) .name = field_name, .endpoints = on, .apply = param_##how
/* Readers of this file. */
#define OWN(field_name, on, how) .name = field_name, .endpoints = on, .apply = how
#define AT(member)               .offset = offsetof(struct params, member)

/* OpenAI's fields, then vLLM's that change what is generated: to ignore those would be a silently
 * different answer. Ranges are OpenAI's. */
static const struct param_field fields[] = {
    {OWN("model", BOTH, take_model)},
    {FIELD("stream", BOTH, take_bool), AT(stream)},
    {OWN("stream_options", BOTH, take_stream_options)},
    {OWN("max_completion_tokens", CHAT, take_max_tokens), .min = 1, .max = INT32_MAX},
    {OWN("max_tokens", CHAT, take_max_tokens), .min = 1, .max = INT32_MAX},
    {OWN("max_tokens", COMP, take_max_tokens), .min = 0, .max = INT32_MAX},
    {FIELD("temperature", BOTH, take_real), .max = 2, AT(temperature), .given = GIVEN_TEMPERATURE},
    {FIELD("top_p", BOTH, take_real), .max = 1, AT(top_p), .given = GIVEN_TOP_P},
    {FIELD("seed", BOTH, take_seed), .min = INT64_MIN, .max = INT64_MAX},
    {OWN("stop", BOTH, take_stop)},
    {FIELD("n", BOTH, take_int), .min = 1, .max = ENGINE_CHOICES_MAX, AT(n_choices)},
    {FIELD("best_of", COMP, take_int), .min = 1, .max = ENGINE_CHOICES_MAX, AT(best_of)},
    {FIELD("echo", COMP, take_bool), AT(echo)},
    {FIELD("suffix", COMP, only_text), .neutral_text = ""},
    {FIELD("logprobs", CHAT, take_bool), AT(logprobs)},
    {FIELD("logprobs", COMP, take_logprobs), .max = COMPLETION_LOGPROBS_MAX},
    {FIELD("top_logprobs", CHAT, take_int), .max = TOP_LOGPROBS_MAX, AT(top_logprobs)},
    {FIELD("logit_bias", BOTH, take_logit_bias)},
    {FIELD("presence_penalty", BOTH, take_real), .min = -2, .max = 2, AT(presence_penalty)},
    {FIELD("frequency_penalty", BOTH, take_real), .min = -2, .max = 2, AT(frequency_penalty)},
    {FIELD("tools", CHAT, only_empty), .neutral_text = "an array"},
    {FIELD("functions", CHAT, only_empty), .neutral_text = "an array"},
    {FIELD("tool_choice", CHAT, only_text), .neutral_text = "none"},
    {FIELD("function_call", CHAT, only_text), .neutral_text = "none"},
    {FIELD("parallel_tool_calls", CHAT, pass_bool)},
    {FIELD("response_format", CHAT, only_text_format)},
    {FIELD("modalities", CHAT, only_text_modality)},
    {FIELD("audio", CHAT, never)},
    {FIELD("prediction", CHAT, never)},
    {FIELD("moderation", CHAT, never)},
    {FIELD("web_search_options", CHAT, never)},
    {FIELD("store", CHAT, only_bool)},
    {FIELD("reasoning_effort", CHAT, only_text), .neutral_text = "none"},
    {FIELD("verbosity", CHAT, only_text), .neutral_text = "medium"},
    {OWN("service_tier", BOTH, take_service_tier)},
    {FIELD("user", BOTH, pass_text)},
    {FIELD("safety_identifier", BOTH, pass_text)},
    {FIELD("prompt_cache_key", BOTH, pass_text)},
    {FIELD("prompt_cache_retention", CHAT, pass_text)},
    {FIELD("prompt_cache_options", CHAT, pass_object)},
    {FIELD("metadata", BOTH, pass_object)},
    /* vLLM's */
    {FIELD("top_k", BOTH, take_top_k), .min = -1, .max = INT32_MAX, .given = GIVEN_TOP_K},
    {FIELD("min_p", BOTH, take_real), .max = 1, AT(min_p), .given = GIVEN_MIN_P},
    {FIELD("repetition_penalty", BOTH, take_repetition), .max = 2, .given = GIVEN_REPETITION},
    {FIELD("ignore_eos", BOTH, take_bool), AT(ignore_eos)},
    {FIELD("min_tokens", BOTH, take_int), .max = INT32_MAX, AT(min_tokens)},
    {FIELD("stop_token_ids", BOTH, take_stop_ids), .max = INT32_MAX},
    {FIELD("use_beam_search", BOTH, only_bool)},
    {OWN("continue_final_message", CHAT, take_continue), AT(continue_final_message)},
    {FIELD("add_generation_prompt", CHAT, take_bool), AT(add_generation_prompt)},
    {OWN("documents", CHAT, take_documents)},
    {FIELD("chat_template", CHAT, never)},
    {OWN("chat_template_kwargs", CHAT, take_template_kwargs)},
    {FIELD("structured_outputs", BOTH, never)},
    {FIELD("guided_json", BOTH, never)},
    {FIELD("guided_regex", BOTH, never)},
    {FIELD("guided_choice", BOTH, never)},
    {FIELD("guided_grammar", BOTH, never)},
};

static bool apply_fields(enum endpoint endpoint, struct params *p, struct api_error *e)
{
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        const struct param_field *f = &fields[i];
        json_t *v = json_object_get(p->doc, f->name);

        if (v == NULL || json_is_null(v) || (f->endpoints & endpoint) == 0)
            continue;
        if (!f->apply(f, v, p, e))
            return false;
        p->given |= f->given;
    }
    if (p->model == NULL)
        return error_set(e, ERROR_MISSING, "model", "Missing required parameter: 'model'.");
    return true;
}

static bool parse_doc(enum endpoint endpoint, struct params *p, struct api_error *e)
{
    if (!json_is_object(p->doc))
        return error_set(e, ERROR_MALFORMED, "", "The request body must be a JSON object.");
    if (!apply_fields(endpoint, p, e) || !params_check_together(endpoint, p, e))
        return false;
    if (endpoint == ENDPOINT_COMPLETIONS)
        return prompt_parse(json_object_get(p->doc, "prompt"), p, e);
    p->kind = ENGINE_PROMPT_CHAT;
    return messages_parse(json_object_get(p->doc, "messages"), &p->messages, e);
}

bool params_parse(enum endpoint endpoint, const char *body, size_t len, struct params *out,
                  struct api_error *e)
{
    struct params p = {.temperature = 1.0,
                       .top_p = 1.0,
                       .repetition_penalty = 1.0,
                       .n_choices = 1,
                       .max_tokens = -1,
                       .add_generation_prompt = true};
    struct reason why = {{0}, {0}};

    /* A number too large is nobody's concern in an unknown field; a known one's range refuses it.
     */
    if (json_parse_huge(body, len, JSON_DEPTH_MAX, &p.doc, &why) != ST_OK)
        return error_set(e, ERROR_MALFORMED, "", "%s", why.text);
    if (!parse_doc(endpoint, &p, e)) {
        params_dispose(&p);
        return false;
    }
    *out = p;
    return true;
}

void params_dispose(struct params *p)
{
    json_decref(p->messages);
    json_decref(p->doc);
    free(p->bias);
    *p = (struct params){0};
}
