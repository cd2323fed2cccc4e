/* Request bodies: what is refused, with which field named, and what arrives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/params.h"
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
    WHOLE("{\"n\":99999999999999999999}", MALFORMED, ""),
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
    CHAT("\"n\":2", UNSUPPORTED, "n"),
    CHAT("\"n\":\"1\"", TYPE, "n"),
    CHAT("\"tools\":[{}]", UNSUPPORTED, "tools"),
    CHAT("\"tools\":1", TYPE, "tools"),
    CHAT("\"tool_choice\":\"required\"", UNSUPPORTED, "tool_choice"),
    CHAT("\"tool_choice\":{}", UNSUPPORTED, "tool_choice"),
    CHAT("\"functions\":[{}]", UNSUPPORTED, "functions"),
    CHAT("\"logit_bias\":{\"5\":1}", UNSUPPORTED, "logit_bias"),
    CHAT("\"logprobs\":true", UNSUPPORTED, "logprobs"),
    CHAT("\"top_logprobs\":3", UNSUPPORTED, "top_logprobs"),
    CHAT("\"presence_penalty\":0.5", UNSUPPORTED, "presence_penalty"),
    CHAT("\"presence_penalty\":9", VALUE, "presence_penalty"),
    CHAT("\"frequency_penalty\":-1", UNSUPPORTED, "frequency_penalty"),
    CHAT("\"response_format\":{\"type\":\"json_object\"}", UNSUPPORTED, "response_format"),
    CHAT("\"response_format\":\"text\"", TYPE, "response_format"),
    CHAT("\"modalities\":[\"text\",\"audio\"]", UNSUPPORTED, "modalities"),
    CHAT("\"audio\":{}", UNSUPPORTED, "audio"),
    CHAT("\"prediction\":{}", UNSUPPORTED, "prediction"),
    CHAT("\"store\":true", UNSUPPORTED, "store"),
    CHAT("\"reasoning_effort\":\"high\"", UNSUPPORTED, "reasoning_effort"),
    CHAT("\"service_tier\":\"priority\"", UNSUPPORTED, "service_tier"),
    CHAT("\"user\":1", TYPE, "user"),
    CHAT("\"metadata\":[]", TYPE, "metadata"),
    CHAT("\"ignore_eos\":1", TYPE, "ignore_eos"),
    CHAT("\"repetition_penalty\":1.2", UNSUPPORTED, "repetition_penalty"),
    CHAT("\"guided_json\":{}", UNSUPPORTED, "guided_json"),
    CHAT("\"add_generation_prompt\":1", TYPE, "add_generation_prompt"),
    CHAT("\"continue_final_message\":\"yes\"", TYPE, "continue_final_message"),
    CHAT("\"documents\":{}", TYPE, "documents"),
    CHAT("\"documents\":[{},\"x\"]", TYPE, "documents[1]"),
    CHAT("\"chat_template\":\"x\"", UNSUPPORTED, "chat_template"),
    CHAT("\"chat_template_kwargs\":[]", TYPE, "chat_template_kwargs"),
    COMP("\"echo\":true", UNSUPPORTED, "echo"),
    COMP("\"suffix\":\"x\"", UNSUPPORTED, "suffix"),
    COMP("\"best_of\":2", UNSUPPORTED, "best_of"),
    COMP("\"logprobs\":0", UNSUPPORTED, "logprobs"),
    COMP("\"max_tokens\":0", VALUE, "max_tokens"),
    PROMPT("null", MISSING),
    PROMPT("5", TYPE),
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
    assert_int_equal(p.max_tokens, 0);
    assert_true(p.temperature >= 1.0 && p.temperature <= 1.0);
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
        cmocka_unit_test(fields_arrive),
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
