#include "api/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/messages.h"
#include "base/json.h"
#include "base/size.h"

enum { CHAT = ENDPOINT_CHAT, COMP = ENDPOINT_COMPLETIONS, BOTH = CHAT | COMP };

struct field {
    const char *name;
    unsigned endpoints;
    bool (*apply)(const struct field *f, json_t *v, struct params *p, struct api_error *e);
    int64_t min, max; /* of numbers */
    size_t offset;    /* take_*: where in struct params */
    int64_t neutral;  /* only_*: the one value that needs no support */
    const char *neutral_text;
};

/* ---- helpers ---- */

static bool wrong_type(const struct field *f, const char *want, const json_t *got,
                       struct api_error *e)
{
    return error_set(e, ERROR_TYPE, f->name,
                     "Invalid type for '%s': expected %s, but got %s instead.", f->name, want,
                     json_kind(got));
}

static bool unsupported(const struct field *f, struct api_error *e)
{
    return error_set(e, ERROR_UNSUPPORTED, f->name,
                     "'%s' is not supported with this value. Leave it out or give its default.",
                     f->name);
}

static bool check_int(const struct field *f, const json_t *v, int64_t *out, struct api_error *e)
{
    int64_t x;

    if (!json_is_integer(v))
        return wrong_type(f, "an integer", v, e);
    x = json_integer_value(v);
    if (x < f->min || x > f->max)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': expected an integer from %" PRId64 " to %" PRId64
                         ".",
                         f->name, f->min, f->max);
    *out = x;
    return true;
}

static bool check_real(const struct field *f, const json_t *v, double *out, struct api_error *e)
{
    double x;

    if (!json_is_number(v))
        return wrong_type(f, "a number", v, e);
    x = json_number_value(v);
    if (x < (double)f->min || x > (double)f->max)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': expected a number from %" PRId64 " to %" PRId64
                         ".",
                         f->name, f->min, f->max);
    *out = x;
    return true;
}

static void *target(const struct field *f, struct params *p)
{
    return (char *)p + f->offset;
}

/* ---- supported fields ---- */

static bool take_bool(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    if (!json_is_boolean(v))
        return wrong_type(f, "a boolean", v, e);
    *(bool *)target(f, p) = json_is_true(v);
    return true;
}

static bool take_real(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    return check_real(f, v, target(f, p), e);
}

static bool take_model(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    if (!json_is_string(v))
        return wrong_type(f, "a string", v, e);
    /* A name that no model can have; it must not reach a fixed-size record either. */
    if (json_string_length(v) > MODEL_NAME_BYTES_MAX)
        return error_set(e, ERROR_MODEL, f->name, "%s", "");
    p->model = json_string_value(v);
    return true;
}

static bool take_seed(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    p->has_seed = true;
    return check_int(f, v, &p->seed, e);
}

static bool take_top_k(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    if (!check_int(f, v, &p->top_k, e))
        return false;
    if (p->top_k == -1) /* vLLM's way to say: off */
        p->top_k = 0;
    return true;
}

static bool take_max_tokens(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    int64_t x = 0;

    if (!check_int(f, v, &x, e))
        return false;
    if (p->max_field != NULL && p->max_tokens != x)
        return error_set(e, ERROR_VALUE, f->name,
                         "'max_tokens' and 'max_completion_tokens' differ: give one of them.");
    p->max_tokens = x;
    p->max_field = f->name;
    return true;
}

static bool add_stop(const struct field *f, const json_t *v, struct params *p, struct api_error *e)
{
    size_t len = json_string_length(v);

    if (!json_is_string(v))
        return wrong_type(f, "a string or an array of strings", v, e);
    if (len == 0 || len > STOP_STRING_BYTES_MAX)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': a stop string has 1 to %d bytes.", f->name,
                         STOP_STRING_BYTES_MAX);
    p->stops[p->n_stops++] = (struct engine_stop_string){json_string_value(v), len};
    return true;
}

static bool take_stop(const struct field *f, json_t *v, struct params *p, struct api_error *e)
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
static bool take_stream_options(const struct field *f, json_t *v, struct params *p,
                                struct api_error *e)
{
    static const struct field member = {.name = "stream_options.include_usage"};
    const json_t *usage;

    if (!json_is_object(v))
        return wrong_type(f, "an object", v, e);
    if (!p->stream)
        return error_set(e, ERROR_VALUE, f->name,
                         "'stream_options' is only allowed when 'stream' is true.");
    usage = json_object_get(v, "include_usage");
    if (usage == NULL || json_is_null(usage))
        return true;
    if (!json_is_boolean(usage))
        return wrong_type(&member, "a boolean", usage, e);
    p->include_usage = json_is_true(usage);
    return true;
}

/* Comes before `add_generation_prompt` in the table: a message that is to be continued needs no
 * other, unless the client asks for both, which the template refuses. */
static bool take_continue(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    if (!take_bool(f, v, p, e))
        return false;
    p->add_generation_prompt = !p->continue_final_message;
    return true;
}

static bool take_documents(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    size_t i;
    const json_t *one;

    if (!json_is_array(v))
        return wrong_type(f, "an array of objects", v, e);
    json_array_foreach(v, i, one)
    {
        char path[32];
        const struct field member = {.name = path};

        snprintf(path, sizeof path, "documents[%zu]", i);
        if (!json_is_object(one))
            return wrong_type(&member, "an object", one, e);
    }
    p->documents = v;
    return true;
}

/* Names that a template keeps for itself are refused where it is known. */
static bool take_template_kwargs(const struct field *f, json_t *v, struct params *p,
                                 struct api_error *e)
{
    if (!json_is_object(v))
        return wrong_type(f, "an object", v, e);
    if (json_object_size(v) > TEMPLATE_KWARGS_MAX ||
        json_dumpb(v, NULL, 0, JSON_COMPACT) > TEMPLATE_KWARGS_BYTES_MAX)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': at most %d members, and %d bytes as JSON.",
                         f->name, TEMPLATE_KWARGS_MAX, TEMPLATE_KWARGS_BYTES_MAX);
    p->template_kwargs = v;
    return true;
}

/* ---- accepted, without effect on the answer ---- */

static bool pass_text(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    return json_is_string(v) || wrong_type(f, "a string", v, e);
}

static bool pass_object(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    return json_is_object(v) || wrong_type(f, "an object", v, e);
}

static bool pass_bool(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    return json_is_boolean(v) || wrong_type(f, "a boolean", v, e);
}

/* ---- known, not supported but for the neutral value ---- */

static bool only_bool(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    if (!json_is_boolean(v))
        return wrong_type(f, "a boolean", v, e);
    return json_is_true(v) == (f->neutral != 0) || unsupported(f, e);
}

static bool only_int(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    int64_t x = 0;

    (void)p;
    return check_int(f, v, &x, e) && (x == f->neutral || unsupported(f, e));
}

static bool only_real(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    double x = 0;

    (void)p;
    if (!check_real(f, v, &x, e))
        return false;
    return (x >= (double)f->neutral && x <= (double)f->neutral) || unsupported(f, e);
}

/* neutral_text: words separated by "|". */
static bool is_word_of(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *s = list; s != NULL; s = strchr(s, '|')) {
        s += *s == '|';
        if (strcspn(s, "|") == len && memcmp(s, word, len) == 0)
            return true;
    }
    return false;
}

static bool only_text(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    if (json_is_string(v) && is_word_of(f->neutral_text, json_string_value(v)))
        return true;
    return unsupported(f, e);
}

static bool only_empty(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    if (json_is_array(v) || json_is_object(v))
        return json_array_size(v) + json_object_size(v) == 0 || unsupported(f, e);
    return wrong_type(f, f->neutral_text, v, e);
}

static bool only_text_format(const struct field *f, json_t *v, struct params *p,
                             struct api_error *e)
{
    const char *type;

    (void)p;
    if (!json_is_object(v))
        return wrong_type(f, "an object", v, e);
    type = json_string_value(json_object_get(v, "type"));
    return (type != NULL && strcmp(type, "text") == 0) || unsupported(f, e);
}

static bool only_text_modality(const struct field *f, json_t *v, struct params *p,
                               struct api_error *e)
{
    const char *one = json_string_value(json_array_get(v, 0));

    (void)p;
    if (!json_is_array(v))
        return wrong_type(f, "an array", v, e);
    return (json_array_size(v) == 1 && one != NULL && strcmp(one, "text") == 0) ||
           unsupported(f, e);
}

static bool never(const struct field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)v;
    (void)p;
    return unsupported(f, e);
}

#define FIELD(field_name, on, how) .name = field_name, .endpoints = on, .apply = how
#define AT(member)                 .offset = offsetof(struct params, member)

/* OpenAI's fields, then vLLM's that change what is generated: to ignore those would be a silently
 * different answer. Ranges are OpenAI's. */
static const struct field fields[] = {
    {FIELD("model", BOTH, take_model)},
    {FIELD("stream", BOTH, take_bool), AT(stream)},
    {FIELD("stream_options", BOTH, take_stream_options)},
    {FIELD("max_completion_tokens", CHAT, take_max_tokens), .min = 1, .max = INT32_MAX},
    {FIELD("max_tokens", BOTH, take_max_tokens), .min = 1, .max = INT32_MAX},
    {FIELD("temperature", BOTH, take_real), .min = 0, .max = 2, AT(temperature)},
    {FIELD("top_p", BOTH, take_real), .min = 0, .max = 1, AT(top_p)},
    {FIELD("seed", BOTH, take_seed), .min = INT64_MIN, .max = INT64_MAX},
    {FIELD("stop", BOTH, take_stop)},
    {FIELD("n", BOTH, only_int), .min = 1, .max = CHOICES_MAX, .neutral = 1},
    {FIELD("best_of", COMP, only_int), .min = 1, .max = 20, .neutral = 1},
    {FIELD("echo", COMP, only_bool)},
    {FIELD("suffix", COMP, only_text), .neutral_text = ""},
    {FIELD("logprobs", CHAT, only_bool)},
    {FIELD("logprobs", COMP, never)},
    {FIELD("top_logprobs", CHAT, only_int), .min = 0, .max = 20},
    {FIELD("logit_bias", BOTH, only_empty), .neutral_text = "an object"},
    {FIELD("presence_penalty", BOTH, only_real), .min = -2, .max = 2},
    {FIELD("frequency_penalty", BOTH, only_real), .min = -2, .max = 2},
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
    {FIELD("service_tier", BOTH, only_text), .neutral_text = "auto|default"},
    {FIELD("user", BOTH, pass_text)},
    {FIELD("safety_identifier", BOTH, pass_text)},
    {FIELD("prompt_cache_key", BOTH, pass_text)},
    {FIELD("prompt_cache_retention", CHAT, pass_text)},
    {FIELD("prompt_cache_options", CHAT, pass_object)},
    {FIELD("metadata", BOTH, pass_object)},
    /* vLLM's */
    {FIELD("top_k", BOTH, take_top_k), .min = -1, .max = INT32_MAX},
    {FIELD("ignore_eos", BOTH, take_bool), AT(ignore_eos)},
    {FIELD("min_tokens", BOTH, only_int), .min = 0, .max = INT32_MAX},
    {FIELD("min_p", BOTH, only_real), .min = 0, .max = 1},
    {FIELD("repetition_penalty", BOTH, only_real), .min = 0, .max = 2, .neutral = 1},
    {FIELD("stop_token_ids", BOTH, only_empty), .neutral_text = "an array"},
    {FIELD("use_beam_search", BOTH, only_bool)},
    {FIELD("continue_final_message", CHAT, take_continue), AT(continue_final_message)},
    {FIELD("add_generation_prompt", CHAT, take_bool), AT(add_generation_prompt)},
    {FIELD("documents", CHAT, take_documents)},
    {FIELD("chat_template", CHAT, never)},
    {FIELD("chat_template_kwargs", CHAT, take_template_kwargs)},
    {FIELD("structured_outputs", BOTH, never)},
    {FIELD("guided_json", BOTH, never)},
    {FIELD("guided_regex", BOTH, never)},
    {FIELD("guided_choice", BOTH, never)},
    {FIELD("guided_grammar", BOTH, never)},
};

static bool apply_fields(enum endpoint endpoint, struct params *p, struct api_error *e)
{
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        const struct field *f = &fields[i];
        json_t *v = json_object_get(p->doc, f->name);

        if (v == NULL || json_is_null(v) || (f->endpoints & endpoint) == 0)
            continue;
        if (!f->apply(f, v, p, e))
            return false;
    }
    if (p->model == NULL)
        return error_set(e, ERROR_MISSING, "model", "Missing required parameter: 'model'.");
    return true;
}

static bool parse_doc(enum endpoint endpoint, struct params *p, struct api_error *e)
{
    if (!json_is_object(p->doc))
        return error_set(e, ERROR_MALFORMED, "", "The request body must be a JSON object.");
    if (!apply_fields(endpoint, p, e))
        return false;
    if (endpoint == ENDPOINT_COMPLETIONS)
        return prompt_parse(json_object_get(p->doc, "prompt"), p, e);
    p->kind = ENGINE_PROMPT_CHAT;
    return messages_parse(json_object_get(p->doc, "messages"), &p->messages, e);
}

bool params_parse(enum endpoint endpoint, const char *body, size_t len, struct params *out,
                  struct api_error *e)
{
    struct params p = {.temperature = 1.0, .top_p = 1.0, .add_generation_prompt = true};
    struct reason why = {{0}, {0}};

    if (json_parse(body, len, JSON_DEPTH_MAX, &p.doc, &why) != ST_OK)
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
    *p = (struct params){0};
}
