/* Documents from outside: what is refused, and what is written comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "base/utf8.h"
#include "tests/lib/splitmix64.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* A text with its length, so that NUL bytes are part of it. */
#define TEXT(literal) literal, sizeof literal - 1

typedef enum status parse(const char *text, size_t len, int depth_max, json_t **out,
                          struct reason *why);
static parse *const parsers[] = {json_parse, json_parse_huge};

/* In a copy of just its size, so that a sanitizer sees a read past the end. */
static enum status parse_copy(parse *p, const char *text, size_t len, json_t **out,
                              struct reason *why)
{
    char *copy = malloc(len > 0 ? len : 1);
    enum status s;

    assert_non_null(copy);
    memcpy(copy, text, len);
    s = p(copy, len, 4, out, why);
    free(copy);
    return s;
}

static void assert_refused(const char *text, size_t len, const char *reason)
{
    for (size_t i = 0; i < COUNT_OF(parsers); i++) {
        json_t *out = NULL;
        struct reason why = {0};

        assert_int_equal(parse_copy(parsers[i], text, len, &out, &why), ST_INVALID);
        assert_null(out);
        assert_string_equal(why.text, reason);
    }
}

static json_t *parsed(parse *p, const char *text, size_t len)
{
    json_t *out = NULL;
    struct reason why = {0};

    if (parse_copy(p, text, len, &out, &why) != ST_OK)
        fail_msg("%.*s: %s", (int)len, text, why.text);
    return out;
}

static void assert_taken(const char *text, size_t len)
{
    for (size_t i = 0; i < COUNT_OF(parsers); i++)
        json_decref(parsed(parsers[i], text, len));
}

static void test_a_nul_byte_is_refused_wherever_it_stands(void **state)
{
    static const char reason[] = "The JSON text contains a NUL byte.";

    (void)state;
    assert_refused(TEXT("[1]\0"), reason);
    assert_refused(TEXT("{\"a\0\":1}"), reason);
    assert_refused(TEXT("{\"a\\\0\":1}"), reason);
    /* Behind a number too large, where a C string's end would be taken for the text's. */
    assert_refused(TEXT("{\"a\":1e999,\"b\\\0\":\"1e999\"}"), reason);
    assert_refused(TEXT("\0"), reason);
}

static void test_an_escaped_nul_is_refused(void **state)
{
    (void)state;
    assert_refused(TEXT("[\"\\u0000\"]"), "The JSON text has a NUL character (line 1, column 9).");
}

static void test_no_value_but_an_object_or_array_is_a_document(void **state)
{
    static const char *const texts[] = {"1", "\"a\"", "null", "true"};

    (void)state;
    assert_refused("", 0, "The JSON text is empty.");
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        json_t *out = NULL;

        assert_int_equal(json_parse(texts[i], strlen(texts[i]), 4, &out, NULL), ST_INVALID);
        assert_null(out);
    }
    assert_taken(TEXT("{}"));
    assert_taken(TEXT(" [ ]\n"));
}

static void test_a_key_twice_is_refused(void **state)
{
    (void)state;
    assert_refused(TEXT("{\"a\":1,\n\"a\":2}"),
                   "The JSON text has a key twice (line 2, column 3).");
    /* One key, written in two ways. */
    assert_refused(TEXT("{\"a\":1,\"\\u0061\":2}"),
                   "The JSON text has a key twice (line 1, column 15).");
    assert_taken(TEXT("{\"a\":{\"a\":1}}"));
}

static void test_what_follows_the_document_is_refused(void **state)
{
    (void)state;
    assert_refused(TEXT("{} {}"), "The JSON text is malformed (line 1, column 4).");
    assert_refused(TEXT("[1,]"), "The JSON text is malformed (line 1, column 4).");
    assert_refused(TEXT("[1"), "The JSON text is malformed (line 1, column 2).");
}

static void test_the_reason_never_holds_content(void **state)
{
    static const char text[] = "{\"secret\": swordfish}";
    struct reason why = {0};
    json_t *out = NULL;

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), 4, &out, &why), ST_INVALID);
    assert_null(strstr(why.text, "swordfish"));
    assert_null(strstr(why.text, "secret"));
}

static void test_depth_is_bounded(void **state)
{
    static const char reason[] = "The JSON text is nested deeper than 4 levels.";

    (void)state;
    assert_taken(TEXT("[[[[]]]]"));
    assert_refused(TEXT("[[[[[]]]]]"), reason);
    assert_refused(TEXT("{\"a\":[{\"a\":[{}]}]}"), reason);
    /* Side by side is not deep. */
    assert_taken(TEXT("[[],[],[],[],[],[[[]]]]"));
}

static void test_brackets_in_strings_are_no_nesting(void **state)
{
    (void)state;
    assert_taken(TEXT("[\"[[[[[[{{{{{{\"]"));
    assert_taken(TEXT("[\"\\\"[[[[[[\"]"));
    /* The string ends behind an escaped backslash; what follows counts. */
    assert_refused(TEXT("[\"\\\\\",[[[[]]]]]"), "The JSON text is nested deeper than 4 levels.");
    assert_refused(TEXT("[\"\\"), "The JSON text is malformed (line 1, column 3).");
}

static void test_invalid_utf8_is_refused(void **state)
{
    static const char reason[] = "The JSON text is not valid UTF-8.";

    (void)state;
    assert_refused(TEXT("[\"\xFF\"]"), reason);
    assert_refused(TEXT("[\"\xC0\x80\"]"), reason);
    assert_refused(TEXT("[\"\xED\xA0\x80\"]"), reason);
    assert_refused(TEXT("[\"a\"]\xC3"), reason);
    assert_taken(TEXT("[\"\xF0\x9F\x98\x80\xC3\xA9\"]"));
}

static void test_half_a_surrogate_pair_is_refused(void **state)
{
    json_t *doc;

    (void)state;
    assert_refused(TEXT("[\"\\uD83D\"]"), "The JSON text is malformed (line 1, column 9).");
    doc = parsed(json_parse, TEXT("[\"\\uD83D\\uDE00\"]"));
    assert_string_equal(json_string_value(json_array_get(doc, 0)), "\xF0\x9F\x98\x80");
    json_decref(doc);
}

/* ---- numbers too large ---- */

static const char *const too_large[] = {
    "9223372036854775808",  "100000000000000000000000000000000", "1e309", "9e308", "1.8E+308",
    "123456789e12345678901"};

static void test_a_number_too_large_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(too_large); i++) {
        char text[80];
        json_t *out = NULL;
        struct reason why = {0};
        const int n = snprintf(text, sizeof text, "[%s]", too_large[i]);

        assert_int_equal(json_parse(text, (size_t)n, 4, &out, &why), ST_INVALID);
        assert_non_null(strstr(why.text, "has a number that is too large"));
    }
}

static void test_a_number_too_large_may_arrive_as_a_huge_one_of_its_sign(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(too_large); i++) {
        char text[160];
        const int n = snprintf(text, sizeof text, "{\"a\":%s,\"b\":[7,-%s],\"c\":\"%s\"}",
                               too_large[i], too_large[i], too_large[i]);
        json_t *doc = parsed(json_parse_huge, text, (size_t)n);
        const json_t *b = json_object_get(doc, "b");

        /* -2^63 is an integer. */
        if (i != 0)
            assert_true(json_real_value(json_array_get(b, 1)) == -JSON_HUGE);
        else
            assert_true(json_integer_value(json_array_get(b, 1)) == INT64_MIN);
        assert_true(json_real_value(json_object_get(doc, "a")) == JSON_HUGE);
        assert_int_equal(json_integer_value(json_array_get(b, 0)), 7);
        assert_string_equal(json_string_value(json_object_get(doc, "c")), too_large[i]);
        assert_true(json_has_huge(doc));
        json_decref(doc);
    }
}

static void test_a_number_too_large_saves_no_other_fault(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        static const char *const texts[] = {"[1e999, 1e+]", "[1e999.5]"};
        json_t *out = NULL;

        assert_int_equal(json_parse_huge(texts[i], strlen(texts[i]), 4, &out, NULL), ST_INVALID);
        assert_null(out);
    }
}

static void test_numbers_that_fit_stay_as_they_are(void **state)
{
    static const char text[] = "[9223372036854775807,-9223372036854775808,0.1,1e-400,1e307]";

    (void)state;
    for (size_t i = 0; i < COUNT_OF(parsers); i++) {
        json_t *doc = parsed(parsers[i], text, strlen(text));

        assert_true(json_integer_value(json_array_get(doc, 0)) == INT64_MAX);
        assert_true(json_integer_value(json_array_get(doc, 1)) == INT64_MIN);
        assert_true(json_real_value(json_array_get(doc, 2)) == 0.1);
        assert_true(json_real_value(json_array_get(doc, 3)) == 0);
        assert_true(json_real_value(json_array_get(doc, 4)) == 1e307);
        assert_false(json_has_huge(doc));
        json_decref(doc);
    }
}

/* Texts of the characters that matter, of any order: whatever json_parse takes, the other one takes
 * as the same; what only the other takes has a huge number. */
static void test_the_two_readers_agree_but_on_huge_numbers(void **state)
{
    static const char alphabet[] = "[[{}]],,::\"\"\"\\\\\0 0123456789eE+-.\xC3\xA9naf";
    uint64_t seed = 1;
    int both = 0;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        char text[24];
        json_t *plain = NULL, *capped = NULL;
        const size_t len = 2 + splitmix64(&seed) % (sizeof text - 2);
        enum status a, b;

        for (size_t i = 0; i < len; i++)
            text[i] = alphabet[splitmix64(&seed) % (sizeof alphabet - 1)];
        text[0] = '[';
        text[len - 1] = ']';
        a = parse_copy(json_parse, text, len, &plain, NULL);
        b = parse_copy(json_parse_huge, text, len, &capped, NULL);
        if (a == ST_OK) {
            assert_int_equal(b, ST_OK);
            assert_true(json_equal(plain, capped));
            both++;
        } else if (b == ST_OK) {
            assert_true(json_has_huge(capped));
        }
        json_decref(plain);
        json_decref(capped);
    }
    assert_true(both > 100);
}

/* ---- writing ---- */

static size_t random_text(uint64_t *seed, char *out, size_t n_chars)
{
    static const uint32_t below[] = {0x20, 0x80, 0x80, 0x800, 0xD800, 0x110000};
    size_t len = 0;

    for (size_t i = 0; i < n_chars; i++) {
        uint32_t cp = (uint32_t)(splitmix64(seed) % below[splitmix64(seed) % COUNT_OF(below)]);

        if (cp >= 0xD800 && cp < 0xE000)
            cp -= 0xD800;
        len += utf8_encode(cp, out + len);
    }
    return len;
}

static void test_a_string_that_is_written_is_read_again(void **state)
{
    uint64_t seed = 2;
    struct buf b;

    (void)state;
    buf_init(&b);
    for (int round = 0; round < 20000; round++) {
        char text[4 * 20];
        json_error_t err;
        json_t *back;
        const size_t len = random_text(&seed, text, splitmix64(&seed) % 20);

        buf_clear(&b);
        json_put_string(&b, text, len);
        assert_false(b.failed);
        assert_int_equal(b.len, json_chars_len(text, len) + 2);
        for (size_t i = 0; i < b.len; i++)
            assert_true((unsigned char)b.data[i] >= 0x20 && b.data[i] != 0x7F);
        back = json_loadb(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
        assert_non_null(back);
        assert_int_equal(json_string_length(back), len);
        assert_memory_equal(json_string_value(back), text, len);
        json_decref(back);
    }
    buf_dispose(&b);
}

static void test_strings_are_escaped_as_little_as_can_be(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    json_put_cstr(&b, "a/b \"c\" \\ \b\f\n\r\t \x01\x7F \xC3\xA9");
    assert_string_equal(buf_cstr(&b), "\"a/b \\\"c\\\" \\\\ \\b\\f\\n\\r\\t "
                                      "\\u0001\\u007f \xC3\xA9\"");
    buf_clear(&b);
    json_put_chars(&b, "", 0);
    assert_int_equal(b.len, 0);
    buf_dispose(&b);
}

static void test_integers_are_written_whole(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    json_put_int(&b, INT64_MIN);
    buf_putc(&b, ' ');
    json_put_int(&b, INT64_MAX);
    buf_putc(&b, ' ');
    json_put_int(&b, 0);
    assert_string_equal(buf_cstr(&b), "-9223372036854775808 9223372036854775807 0");
    buf_dispose(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_nul_byte_is_refused_wherever_it_stands),
        cmocka_unit_test(test_an_escaped_nul_is_refused),
        cmocka_unit_test(test_no_value_but_an_object_or_array_is_a_document),
        cmocka_unit_test(test_a_key_twice_is_refused),
        cmocka_unit_test(test_what_follows_the_document_is_refused),
        cmocka_unit_test(test_the_reason_never_holds_content),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_brackets_in_strings_are_no_nesting),
        cmocka_unit_test(test_invalid_utf8_is_refused),
        cmocka_unit_test(test_half_a_surrogate_pair_is_refused),
        cmocka_unit_test(test_a_number_too_large_is_refused),
        cmocka_unit_test(test_a_number_too_large_may_arrive_as_a_huge_one_of_its_sign),
        cmocka_unit_test(test_a_number_too_large_saves_no_other_fault),
        cmocka_unit_test(test_numbers_that_fit_stay_as_they_are),
        cmocka_unit_test(test_the_two_readers_agree_but_on_huge_numbers),
        cmocka_unit_test(test_a_string_that_is_written_is_read_again),
        cmocka_unit_test(test_strings_are_escaped_as_little_as_can_be),
        cmocka_unit_test(test_integers_are_written_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
