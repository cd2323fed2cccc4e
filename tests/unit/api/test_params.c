/* Request bodies: what is refused, with which field named, and what arrives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/params_model.h"
#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define HEAD "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TEXT "{\"model\":\"m\",\"prompt\":\"hi\""

struct bad_case {
    enum endpoint endpoint;
    const char *body;
    enum error_kind kind;
    const char *param;
};

#define CHAT(members, kind, param)                                                                 \
    {                                                                                              \
        ENDPOINT_CHAT, HEAD "," members "}", ERROR_##kind, param                                   \
    }
#define COMP(members, kind, param)                                                                 \
    {                                                                                              \
        ENDPOINT_COMPLETIONS, TEXT "," members "}", ERROR_##kind, param                            \
    }
#define MESSAGES(list, kind, param)                                                                \
    {                                                                                              \
        ENDPOINT_CHAT, "{\"model\":\"m\",\"messages\":" list "}", ERROR_##kind, param              \
    }
#define PROMPT(value, kind)                                                                        \
    {                                                                                              \
        ENDPOINT_COMPLETIONS, "{\"model\":\"m\",\"prompt\":" value "}", ERROR_##kind, "prompt"     \
    }
#define WHOLE(body, kind, param)                                                                   \
    {                                                                                              \
        ENDPOINT_CHAT, body, ERROR_##kind, param                                                   \
    }

static const struct bad_case bad_cases[] = {
    WHOLE("", MALFORMED, ""),
    WHOLE("{", MALFORMED, ""),
    WHOLE("[1]", MALFORMED, ""),
    WHOLE("{} x", MALFORMED, ""),
    WHOLE("{\"model\":\"a\",\"model\":\"b\"}", MALFORMED, ""),
    WHOLE("{\"model\":\"\xff\"}", MALFORMED, ""),
    WHOLE("{\"model\":\"\\u0000\"}", MALFORMED, ""),
    WHOLE("{\"model\":\"\\ud800\"}", MALFORMED, ""),
    WHOLE("{\"n\":99999999999999999999}", VALUE, "n"),
    WHOLE("[99999999999999999999]", MALFORMED, ""),
    WHOLE("{\"a\":1e400,}", MALFORMED, ""),
    WHOLE("{\"a\":1e400-1}", MALFORMED, ""),
    WHOLE("{\"a\":1e400,\"b\":1.e400}", MALFORMED, ""),
    WHOLE("{\"a\":1e400,\"b\":099999999999999999999}", MALFORMED, ""),
    WHOLE("{\"a\":1e400,\"b\":+1e400}", MALFORMED, ""),
    CHAT("\"seed\":9223372036854775808", VALUE, "seed"),
    CHAT("\"max_tokens\":-9223372036854775809", VALUE, "max_tokens"),
    CHAT("\"chat_template_kwargs\":{\"a\":[-1e400]}", VALUE, "chat_template_kwargs"),
    CHAT("\"documents\":[{\"a\":9223372036854775808}]", VALUE, "documents"),
    MESSAGES("9223372036854775808", TYPE, "messages"),
    {ENDPOINT_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[1,9223372036854775808]}", ERROR_TYPE,
     "prompt[1]"},
    CHAT("\"temperature\":1e400", VALUE, "temperature"),
    CHAT("\"min_p\" : -1e400 ,\"n\":1", VALUE, "min_p"),
    CHAT("\"logit_bias\":{\"5\":1e400}", VALUE, "logit_bias"),
    CHAT("\"user\":\"\\\"n\\\":\",\"seed\":1e999", VALUE, "seed"),
    COMP("\"stop_token_ids\":[1,-99999999999999999999]", VALUE, "stop_token_ids"),
    WHOLE("{}", MISSING, "model"),
    WHOLE("{\"model\":null}", MISSING, "model"),
    WHOLE("{\"model\":5}", TYPE, "model"),
    WHOLE("{\"model\":\"m\"}", MISSING, "messages"),
    MESSAGES("null", MISSING, "messages"),
    MESSAGES("[]", VALUE, "messages"),
    MESSAGES("\"hi\"", TYPE, "messages"),
    MESSAGES("{}", TYPE, "messages"),
    MESSAGES("[\"hi\"]", TYPE, "messages[0]"),
    MESSAGES("[{\"content\":\"x\"}]", MISSING, "messages[0].role"),
    MESSAGES("[{\"role\":1,\"content\":\"x\"}]", TYPE, "messages[0].role"),
    MESSAGES("[{\"role\":\"king\",\"content\":\"x\"}]", VALUE, "messages[0].role"),
    MESSAGES("[{\"role\":\"tool\",\"content\":\"x\"}]", UNSUPPORTED, "messages[0].role"),
    MESSAGES("[{\"role\":\"user\"}]", MISSING, "messages[0].content"),
    MESSAGES("[{\"role\":\"user\",\"content\":null}]", TYPE, "messages[0].content"),
    MESSAGES("[{\"role\":\"user\",\"content\":3}]", TYPE, "messages[0].content"),
    MESSAGES("[{\"role\":\"user\",\"content\":[]}]", VALUE, "messages[0].content"),
    MESSAGES("[{\"role\":\"user\",\"content\":[\"x\"]}]", TYPE, "messages[0].content[0]"),
    MESSAGES("[{\"role\":\"user\",\"content\":[{}]}]", TYPE, "messages[0].content[0].type"),
    MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", TYPE,
             "messages[0].content[0].text"),
    MESSAGES("[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", UNSUPPORTED,
             "messages[0].content[0].type"),
    MESSAGES("[{\"role\":\"user\",\"content\":\"a\",\"name\":1}]", TYPE, "messages[0].name"),
    MESSAGES("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]}]", UNSUPPORTED,
             "messages[0].tool_calls"),
    MESSAGES("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\"}]", MISSING,
             "messages[1].content"),
    CHAT("\"temperature\":\"hot\"", TYPE, "temperature"),
    CHAT("\"temperature\":3", VALUE, "temperature"),
    CHAT("\"temperature\":-0.1", VALUE, "temperature"),
    CHAT("\"top_p\":1.1", VALUE, "top_p"),
    CHAT("\"top_p\":true", TYPE, "top_p"),
    CHAT("\"top_k\":-2", VALUE, "top_k"),
    CHAT("\"seed\":\"x\"", TYPE, "seed"),
    CHAT("\"seed\":1.0", TYPE, "seed"),
    CHAT("\"stream\":\"yes\"", TYPE, "stream"),
    CHAT("\"stream_options\":{}", VALUE, "stream_options"),
    CHAT("\"stream\":true,\"stream_options\":1", TYPE, "stream_options"),
    CHAT("\"stream\":true,\"stream_options\":{\"include_usage\":1}", TYPE,
         "stream_options.include_usage"),
    CHAT("\"stop\":5", TYPE, "stop"),
    CHAT("\"stop\":\"\"", VALUE, "stop"),
    CHAT("\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]", VALUE, "stop"),
    CHAT("\"stop\":[\"a\",1]", TYPE, "stop"),
    CHAT("\"max_tokens\":0", VALUE, "max_tokens"),
    CHAT("\"max_tokens\":-1", VALUE, "max_tokens"),
    CHAT("\"max_tokens\":1.5", TYPE, "max_tokens"),
    CHAT("\"max_tokens\":10.0", TYPE, "max_tokens"),
    CHAT("\"max_completion_tokens\":0", VALUE, "max_completion_tokens"),
    CHAT("\"max_tokens\":5,\"max_completion_tokens\":6", VALUE, "max_tokens"),
    CHAT("\"n\":0", VALUE, "n"),
    CHAT("\"n\":1000000", VALUE, "n"),
    CHAT("\"n\":\"1\"", TYPE, "n"),
    CHAT("\"tools\":[{}]", UNSUPPORTED, "tools"),
    CHAT("\"tools\":1", TYPE, "tools"),
    CHAT("\"tool_choice\":\"required\"", UNSUPPORTED, "tool_choice"),
    CHAT("\"tool_choice\":{}", UNSUPPORTED, "tool_choice"),
    CHAT("\"functions\":[{}]", UNSUPPORTED, "functions"),
    CHAT("\"n\":129", VALUE, "n"),
    CHAT("\"logit_bias\":[]", TYPE, "logit_bias"),
    CHAT("\"logit_bias\":{\"5\":\"1\"}", TYPE, "logit_bias"),
    CHAT("\"logit_bias\":{\"5\":true}", TYPE, "logit_bias"),
    CHAT("\"logit_bias\":{\"5\":100.5}", VALUE, "logit_bias"),
    CHAT("\"logit_bias\":{\"5\":-101}", VALUE, "logit_bias"),
    CHAT("\"logit_bias\":{\"\":1}", VALUE, "logit_bias"),
    CHAT("\"logit_bias\":{\"-5\":1}", VALUE, "logit_bias"),
    CHAT("\"logit_bias\":{\"05\":1}", VALUE, "logit_bias"),
    CHAT("\"logit_bias\":{\"5 \":1}", VALUE, "logit_bias"),
    CHAT("\"logit_bias\":{\"2147483648\":1}", VALUE, "logit_bias"),
    CHAT("\"logit_bias\":{\"99999999999999999999\":1}", VALUE, "logit_bias"),
    CHAT("\"logprobs\":1", TYPE, "logprobs"),
    CHAT("\"top_logprobs\":3", VALUE, "top_logprobs"),
    CHAT("\"logprobs\":false,\"top_logprobs\":3", VALUE, "top_logprobs"),
    CHAT("\"logprobs\":true,\"top_logprobs\":1000", VALUE, "top_logprobs"),
    CHAT("\"logprobs\":true,\"top_logprobs\":21", VALUE, "top_logprobs"),
    CHAT("\"logprobs\":true,\"top_logprobs\":-1", VALUE, "top_logprobs"),
    CHAT("\"presence_penalty\":9", VALUE, "presence_penalty"),
    CHAT("\"frequency_penalty\":-2.1", VALUE, "frequency_penalty"),
    CHAT("\"frequency_penalty\":\"1\"", TYPE, "frequency_penalty"),
    CHAT("\"repetition_penalty\":0", VALUE, "repetition_penalty"),
    CHAT("\"repetition_penalty\":1e-60", VALUE, "repetition_penalty"),
    CHAT("\"repetition_penalty\":2.1", VALUE, "repetition_penalty"),
    CHAT("\"min_p\":1.1", VALUE, "min_p"),
    CHAT("\"min_tokens\":-1", VALUE, "min_tokens"),
    CHAT("\"min_tokens\":6,\"max_tokens\":5", VALUE, "min_tokens"),
    CHAT("\"stop_token_ids\":5", TYPE, "stop_token_ids"),
    CHAT("\"stop_token_ids\":[\"5\"]", TYPE, "stop_token_ids"),
    CHAT("\"stop_token_ids\":[-1]", VALUE, "stop_token_ids"),
    CHAT("\"stop_token_ids\":[2147483648]", VALUE, "stop_token_ids"),
    CHAT("\"response_format\":{\"type\":\"json_object\"}", UNSUPPORTED, "response_format"),
    CHAT("\"response_format\":\"text\"", TYPE, "response_format"),
    CHAT("\"modalities\":[\"text\",\"audio\"]", UNSUPPORTED, "modalities"),
    CHAT("\"audio\":{}", UNSUPPORTED, "audio"),
    CHAT("\"prediction\":{}", UNSUPPORTED, "prediction"),
    CHAT("\"store\":true", UNSUPPORTED, "store"),
    CHAT("\"reasoning_effort\":\"high\"", UNSUPPORTED, "reasoning_effort"),
    CHAT("\"service_tier\":\"priority\"", UNSUPPORTED, "service_tier"),
    CHAT("\"service_tier\":1", TYPE, "service_tier"),
    CHAT("\"user\":1", TYPE, "user"),
    CHAT("\"metadata\":[]", TYPE, "metadata"),
    CHAT("\"ignore_eos\":1", TYPE, "ignore_eos"),
    CHAT("\"guided_json\":{}", UNSUPPORTED, "guided_json"),
    CHAT("\"add_generation_prompt\":1", TYPE, "add_generation_prompt"),
    CHAT("\"continue_final_message\":\"yes\"", TYPE, "continue_final_message"),
    CHAT("\"documents\":{}", TYPE, "documents"),
    CHAT("\"documents\":[{},\"x\"]", TYPE, "documents[1]"),
    CHAT("\"chat_template\":\"x\"", UNSUPPORTED, "chat_template"),
    CHAT("\"chat_template_kwargs\":[]", TYPE, "chat_template_kwargs"),
    COMP("\"echo\":1", TYPE, "echo"),
    COMP("\"suffix\":\"x\"", UNSUPPORTED, "suffix"),
    COMP("\"best_of\":2", UNSUPPORTED, "best_of"),
    COMP("\"best_of\":1,\"n\":2", UNSUPPORTED, "best_of"),
    COMP("\"best_of\":1000", VALUE, "best_of"),
    COMP("\"logprobs\":6", VALUE, "logprobs"),
    COMP("\"logprobs\":true", TYPE, "logprobs"),
    COMP("\"max_tokens\":0", VALUE, "max_tokens"),
    COMP("\"max_tokens\":0,\"echo\":false", VALUE, "max_tokens"),
    COMP("\"max_tokens\":-1,\"echo\":true", VALUE, "max_tokens"),
    PROMPT("null", MISSING),
    PROMPT("5", TYPE),
    PROMPT("\"\"", VALUE),
    PROMPT("[\"\"]", VALUE),
    PROMPT("[]", VALUE),
    PROMPT("[[]]", VALUE),
    PROMPT("[\"a\",\"b\"]", UNSUPPORTED),
    PROMPT("[[1],[2]]", UNSUPPORTED),
};

static void every_bad_field_is_an_error_that_names_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_cases); i++) {
        const struct bad_case *c = &bad_cases[i];
        struct api_error e = {0};
        struct params p;

        if (params_parse(c->endpoint, c->body, strlen(c->body), &p, &e))
            fail_msg("accepted: %s", c->body);
        if (e.kind != c->kind || strcmp(e.reason.param, c->param) != 0)
            fail_msg("%s: kind %d (want %d), param '%s' (want '%s')", c->body, e.kind, c->kind,
                     e.reason.param, c->param);
    }
}

static void neutral_values_of_unsupported_fields_pass(void **state)
{
    static const char body[] = HEAD
        ",\"n\":1,\"tools\":[],\"tool_choice\":\"none\",\"logprobs\":false,\"top_logprobs\":0,"
        "\"logit_bias\":{},\"presence_penalty\":0,\"frequency_penalty\":0.0,\"store\":false,"
        "\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],\"audio\":null,"
        "\"service_tier\":\"auto\",\"user\":\"u\",\"metadata\":{},\"parallel_tool_calls\":true,"
        "\"temperature\":null,\"seed\":null,\"stop\":null,\"stream\":null,\"stream_options\":null,"
        "\"max_tokens\":null,\"unheard_of\":[1],\"repetition_penalty\":1.0}";
    struct api_error e = {0};
    struct params p;

    (void)state;
    if (!params_parse(ENDPOINT_CHAT, body, sizeof body - 1, &p, &e))
        fail_msg("%s: %s", e.reason.param, e.reason.text);
    assert_false(p.has_seed);
    assert_int_equal(p.max_tokens, -1);
    assert_int_equal(p.n_choices, 1);
    assert_int_equal(p.given, GIVEN_REPETITION);
    assert_true(p.temperature >= 1.0 && p.temperature <= 1.0);
    params_dispose(&p);
}

static void numbers_too_large_pass_where_nobody_reads_them(void **state)
{
    static const char body[] =
        HEAD ",\"a\":9223372036854775808,\"b c\":[1e309,-1e309,{\"n\":-99999999999999999999}],"
             "\"\\\"1e400\":1e400,\"user\":\"9223372036854775808\\\" 1e400\","
             "\"seed\":9223372036854775807,\"metadata\":{\"x\":1e999},\"top_k\":5}";
    struct api_error e = {0};
    struct params p;

    (void)state;
    if (!params_parse(ENDPOINT_CHAT, body, sizeof body - 1, &p, &e))
        fail_msg("%s: %s", e.reason.param, e.reason.text);
    assert_true(p.seed == INT64_MAX && p.top_k == 5);
    assert_string_equal(json_string_value(json_object_get(p.doc, "user")),
                        "9223372036854775808\" 1e400");
    params_dispose(&p);
}

static void fields_arrive(void **state)
{
    static const char body[] =
        HEAD ",\"temperature\":0,\"top_p\":0.5,\"top_k\":-1,\"seed\":-9223372036854775808,"
             "\"stop\":[\"a\",\"bc\"],\"max_completion_tokens\":9,\"max_tokens\":9,"
             "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"ignore_eos\":true}";
    struct api_error e = {0};
    struct params p;

    (void)state;
    assert_true(params_parse(ENDPOINT_CHAT, body, sizeof body - 1, &p, &e));
    assert_true(p.has_seed && p.seed == INT64_MIN);
    assert_int_equal(p.top_k, 0);
    assert_int_equal(p.max_tokens, 9);
    assert_int_equal(p.n_stops, 2);
    assert_int_equal(p.stops[1].len, 2);
    assert_true(p.stream && p.include_usage && p.ignore_eos);
    assert_true(p.temperature <= 0);
    params_dispose(&p);
}

static void sampling_fields_arrive(void **state)
{
    static const char body[] =
        HEAD ",\"n\":128,\"logprobs\":true,\"top_logprobs\":20,\"min_p\":0.25,\"top_k\":7,"
             "\"repetition_penalty\":1.5,\"frequency_penalty\":-2,\"presence_penalty\":2,"
             "\"logit_bias\":{\"0\":-100,\"2147483647\":100,\"9\":0.5},\"min_tokens\":3,"
             "\"max_tokens\":3,\"stop_token_ids\":[0,2147483647],\"service_tier\":\"flex\","
             "\"seed\":-1,\"top_p\":0.5,\"temperature\":0.75}";
    struct api_error e = {0};
    struct sampling s;
    struct params p;

    (void)state;
    assert_true(params_parse(ENDPOINT_CHAT, body, sizeof body - 1, &p, &e));
    assert_int_equal(p.n_choices, 128);
    assert_int_equal(p.n_stop_ids, 2);
    assert_int_equal(p.stop_ids[1], INT32_MAX);
    assert_true(p.is_flex);
    assert_string_equal(p.service_tier, "flex");
    params_sampling(&p, &s);
    assert_int_equal(s.n_bias, 3);
    for (uint32_t i = 0; i < s.n_bias; i++) /* values that floats hold exactly */
        assert_true(s.bias[i].bias == (s.bias[i].id == 0   ? -100.0F
                                       : s.bias[i].id == 9 ? 0.5F
                                                           : 100.0F));
    assert_true(s.want_logprobs && !s.want_prompt_logprobs);
    assert_int_equal(s.top_logprobs, 20);
    assert_int_equal(s.min_tokens, 3);
    assert_int_equal(s.top_k, 7);
    assert_true(s.seed == UINT64_MAX);
    assert_true(s.temperature == 0.75F && s.top_p == 0.5F && s.min_p == 0.25F);
    assert_true(s.repetition_penalty == 1.5F && s.frequency_penalty == -2.0F &&
                s.presence_penalty == 2.0F);
    params_dispose(&p);
}

static void completions_have_their_own_logprobs_and_echo(void **state)
{
    static const char body[] = TEXT ",\"logprobs\":0,\"echo\":true,\"max_tokens\":0,\"n\":2,"
                                    "\"best_of\":2}";
    struct api_error e = {0};
    struct sampling s;
    struct params p;

    (void)state;
    assert_true(params_parse(ENDPOINT_COMPLETIONS, body, sizeof body - 1, &p, &e));
    assert_int_equal(p.max_tokens, 0);
    params_sampling(&p, &s);
    assert_true(s.want_logprobs && s.want_prompt_logprobs && s.top_logprobs == 0);
    params_dispose(&p);
}

static bool takes_list(const char *field, json_t *list)
{
    json_t *doc = json_pack("{s:s, s:s, s:o}", "model", "m", "prompt", "hi", field, list);
    char *body = json_dumps(doc, 0);
    struct api_error e = {0};
    struct params p;
    bool ok;

    assert_non_null(body);
    ok = params_parse(ENDPOINT_COMPLETIONS, body, strlen(body), &p, &e);
    if (ok)
        params_dispose(&p);
    else
        assert_true(e.kind == ERROR_VALUE && strcmp(e.reason.param, field) == 0);
    free(body);
    json_decref(doc);
    return ok;
}

static json_t *array_of(size_t n, bool of_text)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, of_text ? json_string("stop") : json_integer((json_int_t)i));
    return list;
}

static json_t *biases_of(size_t n)
{
    json_t *map = json_object();

    for (size_t i = 0; i < n; i++) {
        char key[16];

        snprintf(key, sizeof key, "%zu", i);
        json_object_set_new(map, key, json_integer(1));
    }
    return map;
}

static void lists_are_bounded(void **state)
{
    (void)state;
    assert_true(takes_list("stop", array_of(STOP_STRINGS_MAX, true)));
    assert_false(takes_list("stop", array_of(10000, true)));
    assert_true(takes_list("stop_token_ids", array_of(STOP_IDS_MAX, false)));
    assert_false(takes_list("stop_token_ids", array_of(STOP_IDS_MAX + 1, false)));
    assert_true(takes_list("logit_bias", biases_of(LOGIT_BIAS_MAX)));
    assert_false(takes_list("logit_bias", biases_of(LOGIT_BIAS_MAX + 1)));
}

/* ---- with a model ---- */

static const struct engine_revision revision = {
    .context_tokens = 100,
    .n_vocab = 10,
    .choices_max = 7,
    .defaults =
        {.temperature = 0.5F, .top_p = -1, .min_p = 0, .repetition_penalty = 1.25F, .top_k = 40},
};

static struct params parsed_params(const char *members)
{
    struct api_error e = {0};
    struct params p;
    char body[256];

    snprintf(body, sizeof body, "%s%s}", HEAD, members);
    assert_true(params_parse(ENDPOINT_CHAT, body, strlen(body), &p, &e));
    return p;
}

static void what_the_model_lacks_is_refused_by_name(void **state)
{
    static const struct {
        const char *members, *param; /* "": accepted */
    } cases[] = {
        {",\"logit_bias\":{\"9\":1},\"stop_token_ids\":[9],\"max_tokens\":100", ""},
        {",\"logit_bias\":{\"9\":1,\"10\":1}", "logit_bias"},
        {",\"logit_bias\":{\"2147483647\":1}", "logit_bias"},
        {",\"stop_token_ids\":[0,10]", "stop_token_ids"},
        {",\"max_tokens\":101", "max_tokens"},
        {",\"max_completion_tokens\":101", "max_completion_tokens"},
        {",\"min_tokens\":101", "min_tokens"},
        {",\"n\":7", ""},
        {",\"n\":8", "n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct params p = parsed_params(cases[i].members);
        struct api_error e = {0};

        assert_int_equal(params_check_model(&p, &revision, &e), cases[i].param[0] == '\0');
        assert_string_equal(e.reason.param, cases[i].param);
        params_dispose(&p);
    }
}

static void a_model_s_defaults_fill_only_what_is_open(void **state)
{
    struct params open = parsed_params(""), given = parsed_params(",\"temperature\":1,\"top_k\":-1,"
                                                                  "\"repetition_penalty\":1");
    struct sampling s;

    (void)state;
    params_use_defaults(&open, &revision.defaults);
    params_sampling(&open, &s);
    assert_true(s.temperature == 0.5F && s.repetition_penalty == 1.25F && s.top_k == 40);
    assert_true(s.top_p == 1.0F && s.min_p == 0.0F);
    params_use_defaults(&given, &revision.defaults);
    params_sampling(&given, &s);
    assert_true(s.temperature == 1.0F && s.repetition_penalty == 1.0F && s.top_k == 0);
    params_dispose(&open);
    params_dispose(&given);
}

static void top_p_0_is_the_greedy_choice(void **state)
{
    struct params p = parsed_params(",\"top_p\":1e-50,\"temperature\":2");
    struct sampling s;

    (void)state;
    params_sampling(&p, &s);
    assert_true(s.temperature == 0.0F && s.top_p == 1.0F);
    params_dispose(&p);
}

static void a_request_without_a_seed_gets_a_new_one(void **state)
{
    struct params p = parsed_params("");
    struct sampling a, b;

    (void)state;
    params_sampling(&p, &a);
    params_sampling(&p, &b);
    assert_true(a.seed != b.seed);
    params_dispose(&p);
}

static const char *content_at(const struct params *p, size_t i)
{
    return json_string_value(json_object_get(json_array_get(p->messages, i), "content"));
}

static void messages_become_plain_ones(void **state)
{
    static const char body[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"developer\",\"content\":\"d\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null}]}";
    struct api_error e = {0};
    struct params p;

    (void)state;
    assert_true(params_parse(ENDPOINT_CHAT, body, sizeof body - 1, &p, &e));
    assert_string_equal(json_string_value(json_object_get(json_array_get(p.messages, 0), "role")),
                        "system");
    assert_string_equal(content_at(&p, 2), "");
    params_dispose(&p);
}

static void text_parts_arrive_as_parts_without_foreign_members(void **state)
{
    static const char body[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{"
                               "\"type\":\"text\",\"text\":\"a\"},"
                               "{\"type\":\"text\",\"text\":\"b\",\"cache_control\":{}}]}]}";
    json_t *want = json_loads(
        "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]", 0, NULL);
    struct api_error e = {0};
    struct params p;

    (void)state;
    assert_true(params_parse(ENDPOINT_CHAT, body, sizeof body - 1, &p, &e));
    assert_true(json_equal(json_object_get(json_array_get(p.messages, 0), "content"), want));
    params_dispose(&p);
    json_decref(want);
}

struct ending {
    const char *members;
    bool add_generation_prompt, continue_final_message;
};

static void a_message_to_be_continued_needs_no_new_one(void **state)
{
    static const struct ending cases[] = {
        {"", true, false},
        {",\"add_generation_prompt\":false", false, false},
        {",\"continue_final_message\":true", false, true},
        {",\"continue_final_message\":false", true, false},
        {",\"continue_final_message\":true,\"add_generation_prompt\":null", false, true},
        {",\"add_generation_prompt\":true,\"continue_final_message\":true", true, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct api_error e = {0};
        struct params p;
        char body[256];

        snprintf(body, sizeof body, "%s%s}", HEAD, cases[i].members);
        assert_true(params_parse(ENDPOINT_CHAT, body, strlen(body), &p, &e));
        assert_int_equal(p.add_generation_prompt, cases[i].add_generation_prompt);
        assert_int_equal(p.continue_final_message, cases[i].continue_final_message);
        params_dispose(&p);
    }
}

static bool takes_kwargs(json_t *kwargs)
{
    json_t *doc = json_pack("{s:s, s:[{s:s, s:s}], s:o}", "model", "m", "messages", "role", "user",
                            "content", "hi", "chat_template_kwargs", kwargs);
    char *body = json_dumps(doc, 0);
    struct api_error e = {0};
    struct params p;
    bool ok;

    assert_non_null(body);
    ok = params_parse(ENDPOINT_CHAT, body, strlen(body), &p, &e);
    assert_true(ok ||
                (e.kind == ERROR_VALUE && strcmp(e.reason.param, "chat_template_kwargs") == 0));
    if (ok) {
        assert_int_equal(json_object_size(p.template_kwargs), json_object_size(kwargs));
        params_dispose(&p);
    }
    free(body);
    json_decref(doc);
    return ok;
}

static json_t *object_of(size_t members, size_t bytes_each)
{
    json_t *object = json_object();

    for (size_t i = 0; i < members; i++) {
        char name[16], *text = calloc(1, bytes_each + 1);

        assert_non_null(text);
        memset(text, 'x', bytes_each);
        snprintf(name, sizeof name, "k%zu", i);
        assert_int_equal(json_object_set_new(object, name, json_string(text)), 0);
        free(text);
    }
    return object;
}

static void template_kwargs_are_bounded(void **state)
{
    (void)state;
    assert_true(takes_kwargs(object_of(TEMPLATE_KWARGS_MAX, 5)));
    assert_false(takes_kwargs(object_of(TEMPLATE_KWARGS_MAX + 1, 5)));
    assert_true(takes_kwargs(object_of(1, TEMPLATE_KWARGS_BYTES_MAX - 9))); /* {"k0":"..."} */
    assert_false(takes_kwargs(object_of(1, TEMPLATE_KWARGS_BYTES_MAX - 8)));
}

static void check_prompt(const char *value, enum engine_prompt_kind kind, size_t len)
{
    struct api_error e = {0};
    struct params p;
    char body[128];

    snprintf(body, sizeof body, "{\"model\":\"m\",\"prompt\":%s}", value);
    assert_true(params_parse(ENDPOINT_COMPLETIONS, body, strlen(body), &p, &e));
    assert_int_equal(p.kind, kind);
    assert_int_equal(kind == ENGINE_PROMPT_TEXT ? p.text_len : json_array_size(p.ids), len);
    params_dispose(&p);
}

static void prompts_come_in_four_forms(void **state)
{
    (void)state;
    check_prompt("\"abc\"", ENGINE_PROMPT_TEXT, 3);
    check_prompt("[\"abcd\"]", ENGINE_PROMPT_TEXT, 4);
    check_prompt("[1,2]", ENGINE_PROMPT_IDS, 2);
    check_prompt("[[1,2,3]]", ENGINE_PROMPT_IDS, 3);
}

static void nesting_of_200_levels_is_refused(void **state)
{
    char body[512] = "{\"messages\":";
    size_t at = strlen(body);
    struct api_error e = {0};
    struct params p;

    (void)state;
    memset(body + at, '[', 200);
    memset(body + at + 200, ']', 200);
    memcpy(body + at + 400, "}", 2);
    assert_false(params_parse(ENDPOINT_CHAT, body, strlen(body), &p, &e));
    assert_int_equal(e.kind, ERROR_MALFORMED);
}

static void an_overlong_model_name_is_no_model(void **state)
{
    char body[256];
    struct api_error e = {0};
    struct params p;

    (void)state;
    snprintf(body, sizeof body, "{\"model\":\"%0200d\"}", 1);
    assert_false(params_parse(ENDPOINT_CHAT, body, strlen(body), &p, &e));
    assert_int_equal(e.kind, ERROR_MODEL);
    assert_string_equal(e.reason.param, "model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bad_field_is_an_error_that_names_it),
        cmocka_unit_test(neutral_values_of_unsupported_fields_pass),
        cmocka_unit_test(numbers_too_large_pass_where_nobody_reads_them),
        cmocka_unit_test(fields_arrive),
        cmocka_unit_test(sampling_fields_arrive),
        cmocka_unit_test(completions_have_their_own_logprobs_and_echo),
        cmocka_unit_test(lists_are_bounded),
        cmocka_unit_test(what_the_model_lacks_is_refused_by_name),
        cmocka_unit_test(a_model_s_defaults_fill_only_what_is_open),
        cmocka_unit_test(top_p_0_is_the_greedy_choice),
        cmocka_unit_test(a_request_without_a_seed_gets_a_new_one),
        cmocka_unit_test(messages_become_plain_ones),
        cmocka_unit_test(text_parts_arrive_as_parts_without_foreign_members),
        cmocka_unit_test(a_message_to_be_continued_needs_no_new_one),
        cmocka_unit_test(template_kwargs_are_bounded),
        cmocka_unit_test(prompts_come_in_four_forms),
        cmocka_unit_test(nesting_of_200_levels_is_refused),
        cmocka_unit_test(an_overlong_model_name_is_no_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
