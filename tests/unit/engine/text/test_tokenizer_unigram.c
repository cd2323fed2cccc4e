/* Unigram, with its precompiled normalizer. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/text/small_tokenizer.h"

enum { U_PAD, U_EOS, U_UNK, U_SPACE, U_A, U_B, U_AB, U_SPACE_A, U_ABC, U_FI };

static void make_unigram(struct vocabulary *v)
{
    *v = (struct vocabulary){.kind = "t5"};
    add(v, "<pad>", CONTROL, 0);
    add(v, "</s>", CONTROL, 0);
    add(v, "<unk>", UNKNOWN, 0);
    add(v, SP, NORMAL, -2);
    add(v, "a", NORMAL, -3);
    add(v, "b", NORMAL, -3);
    add(v, "ab", NORMAL, -7); /* worse than its letters */
    add(v, SP "a", NORMAL, -4);
    add(v, "abc", NORMAL, -8);
    add(v, "fi", NORMAL, -5);
}

/* A double array with the keys U+FB01 (the ligature) to "fi" and U+00A0 to a space, by hand: the
 * root's children lie at 1 ^ byte, the next levels' likewise at bases of their own. */
static size_t make_charsmap(uint8_t *out)
{
    static const char texts[] = "fi\0 ";
    enum { N = 1536 };
    static uint32_t units[N];
    const uint32_t ef = 0x100 ^ 0xEF, ac = 0x200 ^ 0xAC, last = 0x300 ^ 0x81;
    const uint32_t c2 = 0x100 ^ 0xC2, a0 = 0x400 ^ 0xA0;
    size_t n = 4;

    memset(units, 0, sizeof units);
    units[0] = 0x100u << 10;
    units[ef] = (ef ^ 0x200u) << 10 | 0xEF;
    units[ac] = (ac ^ 0x300u) << 10 | 0xAC;
    units[last] = (last ^ 0x500u) << 10 | 1u << 8 | 0x81;
    units[0x500] = 1u << 31 | 0;
    units[c2] = (c2 ^ 0x400u) << 10 | 0xC2;
    units[a0] = (a0 ^ 0x501u) << 10 | 1u << 8 | 0xA0;
    units[0x501] = 1u << 31 | 3;
    out[0] = (uint8_t)(sizeof units & 0xFF);
    out[1] = (uint8_t)(sizeof units >> 8);
    out[2] = out[3] = 0;
    for (size_t i = 0; i < N; i++)
        for (int k = 0; k < 4; k++)
            out[n++] = (uint8_t)(units[i] >> 8 * k);
    memcpy(out + n, texts, sizeof texts);
    return n + sizeof texts;
}

static void begin_unigram(struct fixture *f)
{
    struct vocabulary v;

    make_unigram(&v);
    begin(f, &v);
    gguf_build_u32(&f->build, "tokenizer.ggml.eos_token_id", U_EOS);
    gguf_build_u32(&f->build, "tokenizer.ggml.unknown_token_id", U_UNK);
    gguf_build_bool(&f->build, "tokenizer.ggml.remove_extra_whitespaces", true);
}

static void unigram_takes_the_likeliest_way(void **state)
{
    struct fixture f;

    (void)state;
    begin_unigram(&f);
    open_tokenizer(&f);
    EXPECT(&f, "ab", 0, U_SPACE_A, U_B); /* -7, against -8 for the three of them and -9 with "ab" */
    EXPECT(&f, "abc", 0, U_SPACE, U_ABC);
    EXPECT(&f, "ab", TOKENIZER_BOS | TOKENIZER_EOS, U_SPACE_A, U_B, U_EOS);
    EXPECT(&f, "xyb", 0, U_SPACE, U_UNK, U_B);
    close_fixture(&f);
}

static void unigram_merges_spaces(void **state)
{
    struct fixture f;

    (void)state;
    begin_unigram(&f);
    open_tokenizer(&f);
    EXPECT(&f, "  b   a ", 0, U_SPACE, U_B, U_SPACE_A);
    expect_ids(&f, "   ", 0, NULL, 0);
    close_fixture(&f);
}

static void unigram_normalizes_by_the_file(void **state)
{
    uint8_t map[8192];
    struct fixture f;

    (void)state;
    begin_unigram(&f);
    put_bytes(&f.build, "tokenizer.ggml.precompiled_charsmap", map, make_charsmap(map));
    open_tokenizer(&f);
    EXPECT(&f, "\xEF\xAC\x81", 0, U_SPACE, U_FI);
    EXPECT(&f, "b\xC2\xA0\xC2\xA0 a\xC2\xA0", 0, U_SPACE, U_B, U_SPACE_A);
    EXPECT(&f, "\xEF\xAC\x82", 0, U_SPACE, U_UNK);
    close_fixture(&f);
}

static void refuses_broken_charsmaps(void **state)
{
    const struct {
        size_t unit; /* 0: the size in front */
        uint32_t value;
        const char *reason;
    } cases[] = {
        {0, 7, "doesn't fit"},
        {0, 0xFFFFFFFC, "doesn't fit"},
        {0, 0, "doesn't fit"},
        {1 + 0x500, 1u << 31 | 6, "past the end"},
        {1 + 0x500, 1u << 31 | 0x7FFFFFFF, "past the end"},
        {1 + (0x300 ^ 0x81), (0x300u ^ 0x81u ^ 0x8000u) << 10 | 1u << 8 | 0x81, "past the end"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t map[8192];
        size_t len = make_charsmap(map);
        struct fixture f;

        for (int k = 0; k < 4; k++)
            map[4 * cases[i].unit + (size_t)k] = (uint8_t)(cases[i].value >> 8 * k);
        begin_unigram(&f);
        put_bytes(&f.build, "tokenizer.ggml.precompiled_charsmap", map, len);
        expect_reason(&f, cases[i].reason);
    }
}

/* A trie that runs in a circle: looking for keys in a long text must still come to an end. */
static void bears_a_charsmap_that_runs_in_a_circle(void **state)
{
    const uint32_t at = 0x100 ^ 'a', unit = (at ^ 0x100) << 10 | 'a';
    const size_t len = 1000000;
    char *text = malloc(len);
    const struct text_span span = {text, len, false};
    struct token_ids ids = {0};
    struct fixture f;
    uint8_t map[8192];
    size_t map_len = make_charsmap(map);

    (void)state;
    assert_non_null(text);
    memset(text, 'a', len);
    for (int k = 0; k < 4; k++)
        map[4 * (1 + at) + (size_t)k] = (uint8_t)(unit >> 8 * k);
    begin_unigram(&f);
    put_bytes(&f.build, "tokenizer.ggml.precompiled_charsmap", map, map_len);
    open_tokenizer(&f);
    assert_int_equal(tokenizer_encode(f.tokenizer, &span, 1, 0, len, &ids), ST_OK);
    assert_int_equal(ids.n, len);
    token_ids_dispose(&ids);
    free(text);
    close_fixture(&f);
}

static void refuses_a_charsmap_without_an_end(void **state)
{
    uint8_t map[8192];
    size_t len = make_charsmap(map);
    struct fixture f;

    (void)state;
    begin_unigram(&f);
    put_bytes(&f.build, "tokenizer.ggml.precompiled_charsmap", map, len - 1);
    expect_reason(&f, "has no end");
}

static void unigram_takes_long_text_in_stride(void **state)
{
    const size_t len = 1000000;
    char *text = malloc(len);
    const struct text_span span = {text, len, false};
    struct token_ids ids = {0};
    struct fixture f;

    (void)state;
    assert_non_null(text);
    begin_unigram(&f);
    open_tokenizer(&f);
    memset(text, 'a', len);
    assert_int_equal(tokenizer_encode(f.tokenizer, &span, 1, 0, len, &ids), ST_OK);
    assert_int_equal(ids.n, len);
    memset(text, 'x', len);
    ids.n = 0;
    assert_int_equal(tokenizer_encode(f.tokenizer, &span, 1, 0, len, &ids), ST_OK);
    assert_int_equal(ids.n, 2);
    token_ids_dispose(&ids);
    free(text);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unigram_takes_the_likeliest_way),
        cmocka_unit_test(unigram_merges_spaces),
        cmocka_unit_test(unigram_normalizes_by_the_file),
        cmocka_unit_test(refuses_broken_charsmaps),
        cmocka_unit_test(bears_a_charsmap_that_runs_in_a_circle),
        cmocka_unit_test(refuses_a_charsmap_without_an_end),
        cmocka_unit_test(unigram_takes_long_text_in_stride),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
