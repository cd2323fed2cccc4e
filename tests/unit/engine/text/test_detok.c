#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/utf8.h"
#include "engine/text/detok.h"
#include "tests/lib/gguf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

struct fixture {
    struct buf file;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

static int set_up(void **state)
{
    const struct tiny_model_options o = {0};
    struct fixture *f = calloc(1, sizeof *f);
    struct gguf_build b;

    assert_non_null(f);
    gguf_build_init(&b);
    tiny_model_vocabulary(&b, &o);
    gguf_build_finish(&b, &f->file);
    gguf_build_dispose(&b);
    assert_int_equal(gguf_open_memory(f->file.data, f->file.len, &f->gguf, NULL), ST_OK);
    assert_int_equal(tokenizer_new(f->gguf, &f->tokenizer, NULL), ST_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    tokenizer_free(f->tokenizer);
    gguf_close(f->gguf);
    buf_dispose(&f->file);
    free(f);
    return 0;
}

static struct detok *open_detok(void **state, const char *const *stops, size_t n)
{
    struct text_span spans[STOP_STRINGS_MAX] = {{NULL, 0, false}};
    struct detok *d = NULL;

    for (size_t i = 0; i < n; i++)
        spans[i] = (struct text_span){stops[i], strlen(stops[i]), false};
    assert_int_equal(detok_new(((struct fixture *)*state)->tokenizer, spans, n, &d), ST_OK);
    return d;
}

#define BYTE(c) (TINY_BYTE0 + (unsigned char)(c))
#define HELLO   (TINY_MERGE0 + 3)

/* Feeds one byte-token at a time; true once stopped. */
static bool feed_bytes(struct detok *d, const char *bytes, size_t len, struct buf *out)
{
    bool stopped = false;

    for (size_t i = 0; i < len && !stopped; i++)
        stopped = detok_feed(d, BYTE(bytes[i]), out);
    return stopped;
}

static void expect_text(struct buf *out, const char *want)
{
    assert_string_equal(buf_cstr(out), want);
    buf_clear(out);
}

static void sends_text_at_once_without_stop_strings(void **state)
{
    struct detok *d = open_detok(state, NULL, 0);
    struct buf out;

    buf_init(&out);
    assert_false(detok_feed(d, HELLO, &out));
    expect_text(&out, "hello");
    assert_false(detok_feed(d, TINY_IM_END, &out)); /* control tokens are no text */
    expect_text(&out, "");
    assert_false(detok_feed(d, TINY_TOOL_CALL, &out)); /* user-defined ones are */
    expect_text(&out, "<tool_call>");
    assert_false(detok_flush(d, &out));
    expect_text(&out, "");
    buf_dispose(&out);
    detok_free(d);
}

static void waits_for_whole_characters(void **state)
{
    const char *family = "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xC3\xA9";
    struct detok *d = open_detok(state, NULL, 0);
    struct buf out, all;

    buf_init(&out);
    buf_init(&all);
    for (size_t i = 0; i < strlen(family); i++) {
        assert_false(detok_feed(d, BYTE(family[i]), &out));
        assert_true(utf8_is_valid(out.data, out.len));
        buf_append(&all, out.data, out.len);
        buf_clear(&out);
    }
    expect_text(&all, family);
    buf_dispose(&all);
    buf_dispose(&out);
    detok_free(d);
}

/* One U+FFFD for each maximal subpart: the examples of Unicode 15, tables 3-8 to 3-11. */
static void replaces_what_cannot_become_a_character(void **state)
{
    static const struct {
        const char *bytes, *want;
    } cases[] = {
#define R "\xEF\xBF\xBD"
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A"},
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A"},
        {"ab\xE2\x82", "ab" R},
        {"\xC3\xC3\xA9", R "\xC3\xA9"},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct detok *d = open_detok(state, NULL, 0);
        struct buf out;

        buf_init(&out);
        assert_false(feed_bytes(d, cases[i].bytes, strlen(cases[i].bytes), &out));
        detok_flush(d, &out);
        expect_text(&out, cases[i].want);
        buf_dispose(&out);
        detok_free(d);
    }
}

static void finds_stop_strings_across_tokens(void **state)
{
    const char *const stops[] = {"lo wo"};
    struct detok *d = open_detok(state, stops, 1);
    struct buf out;

    buf_init(&out);
    assert_false(detok_feed(d, HELLO, &out));
    expect_text(&out, "hel");
    assert_true(detok_feed(d, TINY_MERGE0 + 8, &out)); /* " world" */
    assert_true(detok_feed(d, HELLO, &out));
    detok_flush(d, &out);
    expect_text(&out, "");
    buf_dispose(&out);
    detok_free(d);
}

static void holds_back_no_more_than_a_stop_string_could_begin_with(void **state)
{
    const char *const stops[] = {"abcabd"};
    struct detok *d = open_detok(state, stops, 1);
    struct buf out;

    buf_init(&out);
    assert_false(feed_bytes(d, "xabcab", 6, &out));
    expect_text(&out, "x");
    assert_false(feed_bytes(d, "c", 1, &out)); /* now "abc" may begin one */
    expect_text(&out, "abc");
    assert_false(feed_bytes(d, "x", 1, &out));
    expect_text(&out, "abcx");
    assert_false(feed_bytes(d, "ab", 2, &out));
    expect_text(&out, "");
    detok_flush(d, &out);
    expect_text(&out, "ab");
    buf_dispose(&out);
    detok_free(d);
}

/* Half a character of a stop string is half a prefix: nothing of it may leave. */
static void stops_at_strings_of_long_characters(void **state)
{
    const char *const stops[] = {"\xE2\x82\xAC!", "\xE2\x82\xAC\xE2\x82\xAC"};
    const char *text = "5\xE2\x82\xAC\xE2\x82\xAC";
    struct detok *d = open_detok(state, stops, 2);
    struct buf out;

    buf_init(&out);
    assert_true(feed_bytes(d, text, strlen(text), &out));
    expect_text(&out, "5");
    buf_dispose(&out);
    detok_free(d);
}

static void stops_at_a_replacement_character(void **state)
{
    const char *const stops[] = {"\xEF\xBF\xBD"};
    struct detok *d = open_detok(state, stops, 1);
    struct buf out;

    buf_init(&out);
    assert_false(feed_bytes(d, "a\xE2\x82", 3, &out));
    assert_true(detok_flush(d, &out));
    expect_text(&out, "a");
    buf_dispose(&out);
    detok_free(d);
}

/* Whatever the tokens, the same text comes out: "hello" as one token and as five. */
static void cuts_alike_however_the_text_is_tokenized(void **state)
{
    static const char *const sets[][STOP_STRINGS_MAX] = {
        {"llo", "e"}, {"ell", "l"}, {"hello", "lo"}, {"o", "hello"}, {"x", "hellp"}, {"h"},
    };

    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        size_t n = sets[i][1] != NULL ? 2 : 1;
        struct detok *one = open_detok(state, sets[i], n), *many = open_detok(state, sets[i], n);
        struct buf a, b;

        buf_init(&a);
        buf_init(&b);
        assert_int_equal(detok_feed(one, HELLO, &a), feed_bytes(many, "hello", 5, &b));
        detok_flush(one, &a);
        detok_flush(many, &b);
        assert_string_equal(buf_cstr(&a), buf_cstr(&b));
        buf_dispose(&a);
        buf_dispose(&b);
        detok_free(one);
        detok_free(many);
    }
}

static void refuses_impossible_stop_strings(void **state)
{
    char longest[STOP_STRING_BYTES_MAX + 1];
    struct text_span spans[STOP_STRINGS_MAX + 1] = {{"a", 1, false}};
    struct detok *d = NULL;

    memset(longest, 'x', sizeof longest);
    (void)state;
    spans[0] = (struct text_span){"", 0, false};
    assert_int_equal(detok_new(NULL, spans, 1, &d), ST_INVALID);
    spans[0] = (struct text_span){longest, sizeof longest, false};
    assert_int_equal(detok_new(NULL, spans, 1, &d), ST_INVALID);
    spans[0] = (struct text_span){"\xBF", 1, false};
    assert_int_equal(detok_new(NULL, spans, 1, &d), ST_INVALID);
    for (size_t i = 0; i < COUNT_OF(spans); i++)
        spans[i] = (struct text_span){"a", 1, false};
    assert_int_equal(detok_new(NULL, spans, COUNT_OF(spans), &d), ST_INVALID);
    assert_null(d);
}

static void counts_bytes_as_they_were_fed(void **state)
{
    static const char *const stops[] = {"llama"};
    struct detok *d = open_detok(state, stops, 1);
    struct buf out;

    buf_init(&out);
    assert_false(feed_bytes(d, "hell", 4, &out)); /* "ll" is held back */
    assert_int_equal(detok_fed_bytes(d), 4);
    assert_int_equal(detok_released_bytes(d), 2);
    assert_false(detok_feed(d, TINY_IM_END, &out)); /* a control token has none */
    assert_int_equal(detok_fed_bytes(d), 4);
    assert_false(feed_bytes(d, "\xC3\x28", 2, &out)); /* a byte that comes out as three, and '(' */
    assert_int_equal(detok_fed_bytes(d), 6);
    assert_int_equal(detok_released_bytes(d), 6);
    assert_false(feed_bytes(d, "\xF0\x9F", 2, &out));
    assert_int_equal(detok_released_bytes(d), 6);
    detok_flush(d, &out);
    assert_int_equal(detok_released_bytes(d), 8);
    expect_text(&out, "hell\uFFFD(\uFFFD");
    buf_dispose(&out);
    detok_free(d);
}

static void counts_nothing_past_a_stop_string_as_released(void **state)
{
    static const char *const stops[] = {"lo"};
    struct detok *d = open_detok(state, stops, 1);
    struct buf out;

    buf_init(&out);
    assert_true(detok_feed(d, HELLO, &out));
    assert_int_equal(detok_fed_bytes(d), 5);
    assert_int_equal(detok_released_bytes(d), 3);
    detok_flush(d, &out);
    assert_int_equal(detok_released_bytes(d), 3);
    expect_text(&out, "hel");
    buf_dispose(&out);
    detok_free(d);
}

static void looks_for_stop_strings_only_when_told_to(void **state)
{
    static const char *const stops[] = {"ab"};
    struct detok *d = open_detok(state, stops, 1);
    struct buf out;

    buf_init(&out);
    detok_search_stops(d, false);
    assert_false(feed_bytes(d, "abab a", 6, &out));
    expect_text(&out, "abab a"); /* not even held back */
    detok_search_stops(d, true);
    assert_false(feed_bytes(d, "b a", 3, &out)); /* its first half is out */
    expect_text(&out, "b ");
    assert_true(feed_bytes(d, "b", 1, &out));
    expect_text(&out, "");
    buf_dispose(&out);
    detok_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_text_at_once_without_stop_strings),
        cmocka_unit_test(waits_for_whole_characters),
        cmocka_unit_test(replaces_what_cannot_become_a_character),
        cmocka_unit_test(finds_stop_strings_across_tokens),
        cmocka_unit_test(holds_back_no_more_than_a_stop_string_could_begin_with),
        cmocka_unit_test(stops_at_strings_of_long_characters),
        cmocka_unit_test(stops_at_a_replacement_character),
        cmocka_unit_test(cuts_alike_however_the_text_is_tokenized),
        cmocka_unit_test(refuses_impossible_stop_strings),
        cmocka_unit_test(counts_bytes_as_they_were_fed),
        cmocka_unit_test(counts_nothing_past_a_stop_string_as_released),
        cmocka_unit_test(looks_for_stop_strings_only_when_told_to),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
