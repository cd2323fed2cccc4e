/* SentencePiece BPE, by score and by merges. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/text/small_tokenizer.h"

enum { UNK = 0, BOS = 1, EOS = 2, TOOL = 3, BYTE0 = 4, FIRST = BYTE0 + 256 };
enum { SPACE = FIRST, A, B, AB, SPACE_A, BA, TWO_SPACES, ABA, N_LETTERS };

static char byte_texts[256][8];

/* Letters a and b; "ba" scores above "ab", so that "aba" is a + ba, and then the whole. */
static void make_spm(struct vocabulary *v)
{
    *v = (struct vocabulary){.kind = "llama"};
    add(v, "<unk>", UNKNOWN, 0);
    add(v, "<s>", CONTROL, 0);
    add(v, "</s>", CONTROL, 0);
    add(v, SP "tool", USER, 0);
    for (int i = 0; i < 256; i++) {
        snprintf(byte_texts[i], sizeof byte_texts[i], "<0x%02X>", i);
        add(v, byte_texts[i], BYTE, 0);
    }
    add(v, SP, NORMAL, -9);
    add(v, "a", NORMAL, -10);
    add(v, "b", NORMAL, -11);
    add(v, "ab", NORMAL, -2);
    add(v, SP "a", NORMAL, -3);
    add(v, "ba", NORMAL, -1);
    add(v, SP SP, NORMAL, -4);
    add(v, "aba", NORMAL, -5);
}

static void begin_spm(struct fixture *f)
{
    struct vocabulary v;

    make_spm(&v);
    begin(f, &v);
    gguf_build_u32(&f->build, "tokenizer.ggml.bos_token_id", BOS);
    gguf_build_u32(&f->build, "tokenizer.ggml.eos_token_id", EOS);
}

static void spm_merges_by_score(void **state)
{
    struct fixture f;

    (void)state;
    begin_spm(&f);
    gguf_build_bool(&f.build, "tokenizer.ggml.add_space_prefix", false);
    open_tokenizer(&f);
    EXPECT(&f, "ab", 0, AB);
    EXPECT(&f, "aba", 0, ABA);
    EXPECT(&f, "abab", 0, ABA, B); /* by way of a, ba, b */
    EXPECT(&f, "  a", 0, SPACE, SPACE_A);
    EXPECT(&f, "a  b", 0, A, TWO_SPACES, B);
    close_fixture(&f);
}

static void spm_puts_a_space_before_each_stretch_of_text(void **state)
{
    struct fixture f;

    (void)state;
    begin_spm(&f);
    open_tokenizer(&f);
    EXPECT(&f, "a", 0, SPACE_A);
    EXPECT(&f, "a</s>a", PARSE, SPACE_A, EOS, SPACE_A);
    EXPECT(&f, "b toolb", 0, SPACE, B, TOOL, SPACE, B); /* its U+2581 is a space in the text */
    expect_ids(&f, "", 0, NULL, 0);
    close_fixture(&f);
}

static void spm_spells_unknown_characters_in_bytes(void **state)
{
    struct fixture f;

    (void)state;
    begin_spm(&f);
    open_tokenizer(&f);
    EXPECT(&f, "\xC3\xA9\n", 0, SPACE, BYTE0 + 0xC3, BYTE0 + 0xA9, BYTE0 + '\n');
    /* The spelling of a byte is not the byte. */
    EXPECT(&f, "<0x41>", 0, SPACE, BYTE0 + '<', BYTE0 + '0', BYTE0 + 'x', BYTE0 + '4', BYTE0 + '1',
           BYTE0 + '>');
    close_fixture(&f);
}

static void spm_without_bytes_says_unknown_once_for_a_run(void **state)
{
    struct vocabulary v = {.kind = "llama"};
    struct fixture f;

    (void)state;
    add(&v, "<unk>", UNKNOWN, 0);
    add(&v, SP, NORMAL, -1);
    add(&v, "a", NORMAL, -1);
    begin(&f, &v);
    gguf_build_bool(&f.build, "tokenizer.ggml.add_bos_token", false);
    open_tokenizer(&f);
    EXPECT(&f, "xyza", 0, 1, 0, 2);
    EXPECT(&f, "x a", 0, 1, 0, 1, 2);
    close_fixture(&f);
}

static void spm_merges_by_list_where_scores_are_absent(void **state)
{
    static const char *const merges[] = {"a b", "b a", SP " a"};
    struct vocabulary v;
    struct fixture f;

    (void)state;
    make_spm(&v);
    v.no_scores = true;
    begin(&f, &v);
    gguf_build_strings(&f.build, "tokenizer.ggml.merges", merges, COUNT_OF(merges));
    gguf_build_bool(&f.build, "tokenizer.ggml.add_bos_token", false);
    open_tokenizer(&f);
    EXPECT(&f, "aba", 0, SPACE, AB, A); /* unlike by score */
    close_fixture(&f);
}

static void spm_adds_one_bos(void **state)
{
    const struct text_span chat[] = {{"<s>", 3, true}, {"a<s>", 4, false}};
    struct token_ids ids = {0};
    struct fixture f;

    (void)state;
    begin_spm(&f);
    gguf_build_bool(&f.build, "tokenizer.ggml.add_eos_token", true);
    open_tokenizer(&f);
    EXPECT(&f, "a", TOKENIZER_BOS, BOS, SPACE_A);
    EXPECT(&f, "a", TOKENIZER_BOS | TOKENIZER_EOS, BOS, SPACE_A, EOS);
    EXPECT(&f, "<s>a", TOKENIZER_BOS | PARSE, BOS, SPACE_A);
    assert_int_equal(tokenizer_encode(f.tokenizer, chat, 2, TOKENIZER_BOS, 100, &ids), ST_OK);
    assert_int_equal(ids.ids[0], BOS);
    for (size_t i = 1; i < ids.n; i++)
        assert_false(tokenizer_is_control(f.tokenizer, ids.ids[i]));
    token_ids_dispose(&ids);
    close_fixture(&f);
}

static void spm_decodes_what_it_encoded(void **state)
{
    static const char *const texts[] = {"a", " a", "  ab b", "\xF0\x9F\x91\x8D a\n", " "};
    struct fixture f;

    (void)state;
    begin_spm(&f);
    open_tokenizer(&f);
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        expect_round_trip(&f, texts[i]);
    close_fixture(&f);
}

static void spm_keeps_the_space_of_text_that_goes_on(void **state)
{
    const struct {
        int32_t before;
        const char *want;
    } cases[] = {{AB, " a"}, {BYTE0 + '\n', " a"}, {BOS, "a"}, {EOS, "a"}};
    struct fixture f;

    (void)state;
    begin_spm(&f);
    open_tokenizer(&f);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct detok *d = NULL;
        struct buf out;

        buf_init(&out);
        assert_int_equal(detok_new(f.tokenizer, NULL, 0, &d), ST_OK);
        detok_follow(d, cases[i].before);
        assert_false(detok_feed(d, SPACE_A, &out));
        assert_string_equal(buf_cstr(&out), cases[i].want);
        buf_dispose(&out);
        detok_free(d);
    }
    close_fixture(&f);
}

/* Half a character never leaves, whichever kind of token its bytes are in. */
static void spm_waits_for_whole_characters(void **state)
{
    static const unsigned char thumb[] = {0xF0, 0x9F, 0x91, 0x8D};
    struct detok *d = NULL;
    struct fixture f;
    struct buf out;

    (void)state;
    buf_init(&out);
    begin_spm(&f);
    open_tokenizer(&f);
    assert_int_equal(detok_new(f.tokenizer, NULL, 0, &d), ST_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out.len, 0);
        assert_false(detok_feed(d, BYTE0 + thumb[i], &out));
    }
    assert_string_equal(buf_cstr(&out), "\xF0\x9F\x91\x8D");
    buf_dispose(&out);
    detok_free(d);
    close_fixture(&f);
}

/* Of one letter, without a space, and of nothing but spaces: a quadratic step would take hours. */
static void spm_takes_long_text_in_stride(void **state)
{
    const char *const units[] = {"a", " ", "ab", "\xE4\xB8\xAD"};
    const size_t len = 900000;
    char *text = malloc(len);
    struct fixture f;

    (void)state;
    assert_non_null(text);
    begin_spm(&f);
    open_tokenizer(&f);
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        const struct text_span span = {text, len, true};
        struct token_ids ids = {0};

        for (size_t at = 0; at < len; at += strlen(units[i]))
            memcpy(text + at, units[i], strlen(units[i]));
        assert_int_equal(tokenizer_encode(f.tokenizer, &span, 1, 0, len + 1, &ids), ST_OK);
        assert_true(ids.n >= len / 3);
        token_ids_dispose(&ids);
    }
    free(text);
    close_fixture(&f);
}

static void refuses_broken_bytes_and_scores(void **state)
{
    struct vocabulary v;
    struct fixture f;

    (void)state;
    make_spm(&v);
    v.tokens[BYTE0].text = "<0x-1>";
    begin(&f, &v);
    expect_reason(&f, "not spelled as one");
    make_spm(&v);
    v.tokens[A].score = -1.0f / 0.0f;
    begin(&f, &v);
    expect_reason(&f, "not a number");
    make_spm(&v);
    v.no_scores = true;
    begin(&f, &v);
    put_floats(&f.build, "tokenizer.ggml.scores", (const float[]){1, 2, 3}, 3);
    expect_reason(&f, "not a list of");
    begin(&f, &v);
    expect_reason(&f, "no list of merges");
}

/* ---- what all kinds share, on this one ---- */

static void knows_the_ids_that_end_a_generation(void **state)
{
    const int32_t more[] = {TOOL, AB};
    struct fixture f;

    (void)state;
    begin_spm(&f);
    gguf_build_u32(&f.build, "tokenizer.ggml.eot_token_id", A);
    gguf_build_i32s(&f.build, "sluice.eog_token_ids", more, COUNT_OF(more));
    open_tokenizer(&f);
    assert_true(tokenizer_is_eog(f.tokenizer, EOS));
    assert_true(tokenizer_is_eog(f.tokenizer, A));
    assert_true(tokenizer_is_eog(f.tokenizer, TOOL));
    assert_true(tokenizer_is_eog(f.tokenizer, AB));
    assert_false(tokenizer_is_eog(f.tokenizer, BOS));
    close_fixture(&f);
    begin_spm(&f);
    gguf_build_i32s(&f.build, "sluice.eog_token_ids", (const int32_t[]){-1}, 1);
    expect_reason(&f, "entry 0");
}

/* In OpenAI's harmony format <|end|> closes a message, after which the turn goes on. */
static void takes_end_for_the_end_unless_messages_end_with_it(void **state)
{
    for (int harmony = 0; harmony < 2; harmony++) {
        struct vocabulary v;
        struct fixture f;
        int32_t end;

        (void)state;
        make_spm(&v);
        end = (int32_t)v.n;
        add(&v, "<|end|>", CONTROL, 0);
        if (harmony) {
            add(&v, "<|return|>", CONTROL, 0);
            add(&v, "<|call|>", CONTROL, 0);
        }
        begin(&f, &v);
        gguf_build_bool(&f.build, "tokenizer.ggml.add_bos_token", false);
        open_tokenizer(&f);
        assert_int_equal(tokenizer_is_eog(f.tokenizer, end), !harmony);
        if (harmony)
            assert_true(tokenizer_is_eog(f.tokenizer, end + 1));
        close_fixture(&f);
    }
}

static void refuses_a_kind_by_name(void **state)
{
    struct vocabulary v;
    struct fixture f;

    (void)state;
    make_spm(&v);
    v.kind = "rwkv";
    begin(&f, &v);
    expect_reason(&f, "\"rwkv\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_merges_by_score),
        cmocka_unit_test(spm_puts_a_space_before_each_stretch_of_text),
        cmocka_unit_test(spm_spells_unknown_characters_in_bytes),
        cmocka_unit_test(spm_without_bytes_says_unknown_once_for_a_run),
        cmocka_unit_test(spm_merges_by_list_where_scores_are_absent),
        cmocka_unit_test(spm_adds_one_bos),
        cmocka_unit_test(spm_decodes_what_it_encoded),
        cmocka_unit_test(spm_keeps_the_space_of_text_that_goes_on),
        cmocka_unit_test(spm_waits_for_whole_characters),
        cmocka_unit_test(spm_takes_long_text_in_stride),
        cmocka_unit_test(refuses_broken_bytes_and_scores),
        cmocka_unit_test(knows_the_ids_that_end_a_generation),
        cmocka_unit_test(takes_end_for_the_end_unless_messages_end_with_it),
        cmocka_unit_test(refuses_a_kind_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
