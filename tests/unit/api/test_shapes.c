/* Response bodies, and the small texts around them: durations, queries, routes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api/duration.h"
#include "api/query.h"
#include "api/routes.h"
#include "api/shapes.h"
#include "base/json.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static const struct engine_usage usage = {
    .prompt_tokens = 7, .cached_tokens = 4, .output_tokens = 3};

static const struct shape_choice x = {.text = "x", .len = 1};

static struct shape shape_of(enum endpoint endpoint, bool include_usage)
{
    return (struct shape){.endpoint = endpoint,
                          .id = "chatcmpl-1",
                          .created_s = 5,
                          .model = "m\"",
                          .fingerprint = "fp_1",
                          .include_usage = include_usage};
}

static json_t *parsed(struct buf *b)
{
    struct reason why;
    json_t *doc = NULL;

    assert_int_equal(json_parse(b->data, b->len, 10, &doc, &why), ST_OK);
    buf_dispose(b);
    return doc;
}

static void put_answer(struct buf *b, const struct shape *s, const struct shape_choice *list,
                       uint32_t n)
{
    shape_answer_begin(b, s);
    for (uint32_t i = 0; i < n; i++)
        shape_answer_choice(b, s, &list[i]);
    shape_answer_end(b, s, &usage);
}

static json_t *choice(json_t *doc)
{
    assert_int_equal(json_array_size(json_object_get(doc, "choices")), 1);
    return json_array_get(json_object_get(doc, "choices"), 0);
}

static void a_chat_answer_escapes_its_text_and_counts(void **state)
{
    static const char text[] = "a\"\\\n\x01\xc3\xa9";
    const struct shape_choice one = {
        .text = text, .len = sizeof text - 1, .finish = ENGINE_FINISH_STOP};
    struct shape s = shape_of(ENDPOINT_CHAT, false);
    struct buf b;
    json_t *doc, *message;

    (void)state;
    buf_init(&b);
    put_answer(&b, &s, &one, 1);
    doc = parsed(&b);
    message = json_object_get(choice(doc), "message");
    assert_string_equal(json_string_value(json_object_get(message, "content")), text);
    assert_true(json_is_null(json_object_get(message, "refusal")));
    assert_string_equal(json_string_value(json_object_get(choice(doc), "finish_reason")), "stop");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(doc, "usage"), "total_tokens")), 10);
    json_decref(doc);
}

static void choices_come_in_order_with_their_own_ends(void **state)
{
    const struct shape_choice two[] = {
        {.index = 0, .text = "a", .len = 1, .finish = ENGINE_FINISH_LENGTH},
        {.index = 1,
         .echo = "p",
         .echo_len = 1,
         .text = "b",
         .len = 1,
         .finish = ENGINE_FINISH_STOP}};
    struct shape s = shape_of(ENDPOINT_COMPLETIONS, false);
    struct buf b;
    json_t *doc, *second;

    (void)state;
    buf_init(&b);
    put_answer(&b, &s, two, 2);
    doc = parsed(&b);
    assert_int_equal(json_array_size(json_object_get(doc, "choices")), 2);
    second = json_array_get(json_object_get(doc, "choices"), 1);
    assert_int_equal(json_integer_value(json_object_get(second, "index")), 1);
    assert_string_equal(json_string_value(json_object_get(second, "text")), "pb");
    assert_string_equal(json_string_value(json_object_get(second, "finish_reason")), "stop");
    assert_true(json_is_null(json_object_get(second, "logprobs")));
    json_decref(doc);
}

static const char *tier_of(const struct shape *s)
{
    static char tier[16];
    struct buf b;
    json_t *doc;
    const char *text;

    buf_init(&b);
    shape_first(&b, s, 3);
    doc = parsed(&b);
    assert_int_equal(json_integer_value(json_object_get(choice(doc), "index")), 3);
    text = json_string_value(json_object_get(doc, "service_tier"));
    snprintf(tier, sizeof tier, "%s", text != NULL ? text : "absent");
    json_decref(doc);
    return tier;
}

static void the_tier_is_told_where_it_was_asked_for(void **state)
{
    struct shape s = shape_of(ENDPOINT_CHAT, false);

    (void)state;
    assert_string_equal(tier_of(&s), "absent");
    s.service_tier = "flex";
    assert_string_equal(tier_of(&s), "flex");
}

static void only_the_last_chunk_has_a_reason(void **state)
{
    struct shape s = shape_of(ENDPOINT_CHAT, true);
    struct buf b;
    json_t *doc;

    (void)state;
    buf_init(&b);
    shape_text(&b, &s, &x);
    doc = parsed(&b);
    assert_true(json_is_null(json_object_get(choice(doc), "finish_reason")));
    assert_true(json_is_null(json_object_get(doc, "usage")));
    json_decref(doc);
    shape_finish(&b, &s, 0, ENGINE_FINISH_LENGTH);
    doc = parsed(&b);
    assert_string_equal(json_string_value(json_object_get(choice(doc), "finish_reason")), "length");
    json_decref(doc);
}

static void usage_is_in_chunks_only_when_asked_for(void **state)
{
    struct shape s = shape_of(ENDPOINT_COMPLETIONS, false);
    struct buf b;
    json_t *doc;

    (void)state;
    buf_init(&b);
    shape_text(&b, &s, &x);
    doc = parsed(&b);
    assert_null(json_object_get(doc, "usage"));
    json_decref(doc);
    shape_usage(&b, &s, &usage);
    doc = parsed(&b);
    assert_int_equal(json_array_size(json_object_get(doc, "choices")), 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(doc, "usage"), "completion_tokens")), 3);
    json_decref(doc);
}

static void the_fingerprint_follows_device_build_and_model(void **state)
{
    struct engine_stats a = {.device = "cpu avx2", .build = "1"},
                        c = {.device = "cpu", .build = "1"};
    char one[FINGERPRINT_BYTES], two[FINGERPRINT_BYTES];

    (void)state;
    shape_fingerprint(&a, "r", one);
    shape_fingerprint(&a, "r", two);
    assert_string_equal(one, two);
    shape_fingerprint(&c, "r", two);
    assert_string_not_equal(one, two);
    shape_fingerprint(&a, "s", two);
    assert_string_not_equal(one, two);
    c = (struct engine_stats){.device = "cpu avx2", .build = "2"};
    shape_fingerprint(&c, "r", two);
    assert_string_not_equal(one, two);
}

/* Threads change no token: no part of it. */
static void the_fingerprint_names_the_device(void **state)
{
    struct engine_stats two_threads = {.device = "cpu avx2 fast kv-q8 2 threads", .build = "1"},
                        one_thread = {.device = "cpu avx2 fast kv-q8 1 thread", .build = "1"},
                        away = {.connected = false};
    char one[FINGERPRINT_BYTES], two[FINGERPRINT_BYTES];

    (void)state;
    shape_fingerprint(&two_threads, "r", two);
    shape_fingerprint(&one_thread, "r", one);
    assert_string_equal(one, two);
    assert_memory_equal(two, "fp_cpu-avx2-fast-kv-q8-", 23);
    assert_int_equal(strlen(two), 23 + 12);
    memset(away.device, 'x', sizeof away.device - 1);
    shape_fingerprint(&away, "r", two);
    assert_int_equal(strlen(two), FINGERPRINT_BYTES - 1);
}

static void durations_are_written_as_openai_does(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {-5, "0s"},      {0, "0s"},        {17, "17ms"},    {1000, "1s"},
        {1500, "1.5s"},  {1050, "1.05s"},  {59000, "59s"},  {59001, "1m0s"},
        {60000, "1m0s"}, {360000, "6m0s"}, {61001, "1m2s"}, {3603000, "1h0m3s"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[DURATION_TEXT_BYTES];

        duration_format(cases[i].ms, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void queries_are_decoded_pair_by_pair(void **state)
{
    static const char text[] = "a=1&group_by[]=x%2Fy+z&b&group_by%5B%5D=&&c=";
    static const char *const want[] = {"a", "1",        "group_by", "x/y z", "b",
                                       "",  "group_by", "",         "c",     ""};
    const char *name, *value;
    struct query q;

    (void)state;
    assert_true(query_init(&q, text, sizeof text - 1));
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i += 2) {
        assert_true(query_next(&q, &name, &value));
        assert_string_equal(name, want[i]);
        assert_string_equal(value, want[i + 1]);
    }
    assert_false(query_next(&q, &name, &value));
}

static void broken_queries_are_refused(void **state)
{
    static const char *const bad[] = {"a=%", "a=%4", "a=%zz", "a=%00", "%=1"};
    char longer[QUERY_BYTES_MAX];
    struct query q;
    long long n;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(query_init(&q, bad[i], strlen(bad[i])));
    memset(longer, '&', sizeof longer);
    assert_false(query_init(&q, longer, sizeof longer));
    assert_false(query_int("", &n) || query_int("-1", &n) || query_int("1x", &n) ||
                 query_int("1234567890123456", &n));
    assert_true(query_int("42", &n) && n == 42);
}

static enum error_kind find(const char *method, const char *path, unsigned listener,
                            const struct route **out, const char **allow)
{
    return route_find(method, strlen(method), path, strlen(path), listener, out, allow);
}

static void routes_know_paths_methods_and_listeners(void **state)
{
    const struct route *r = NULL;
    const char *allow = NULL;

    (void)state;
    assert_int_equal(find("POST", "/v1/chat/completions", LISTENER_MAIN, &r, &allow), ERROR_NONE);
    assert_int_equal(r->endpoint, ENDPOINT_CHAT);
    assert_int_equal(find("GET", "/v1/chat/completions", LISTENER_MAIN, &r, &allow), ERROR_METHOD);
    assert_string_equal(allow, "POST");
    assert_int_equal(find("GET", "/v1/models/a/b", LISTENER_TLS, &r, &allow), ERROR_NONE);
    assert_int_equal(find("GET", "/v1/models/", LISTENER_TLS, &r, &allow), ERROR_URL);
    assert_int_equal(find("GET", "/v1/models", LISTENER_ADMIN, &r, &allow), ERROR_URL);
    assert_int_equal(find("GET", "/metrics", LISTENER_ADMIN, &r, &allow), ERROR_NONE);
    assert_int_equal(find("GET", "/v1/chat/completionsx", LISTENER_MAIN, &r, &allow), ERROR_URL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_answer_escapes_its_text_and_counts),
        cmocka_unit_test(choices_come_in_order_with_their_own_ends),
        cmocka_unit_test(the_tier_is_told_where_it_was_asked_for),
        cmocka_unit_test(only_the_last_chunk_has_a_reason),
        cmocka_unit_test(usage_is_in_chunks_only_when_asked_for),
        cmocka_unit_test(the_fingerprint_follows_device_build_and_model),
        cmocka_unit_test(the_fingerprint_names_the_device),
        cmocka_unit_test(durations_are_written_as_openai_does),
        cmocka_unit_test(queries_are_decoded_pair_by_pair),
        cmocka_unit_test(broken_queries_are_refused),
        cmocka_unit_test(routes_know_paths_methods_and_listeners),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
