/* WordPiece. */
#include <string.h>

#include "tests/unit/engine/text/small_tokenizer.h"

enum { W_PAD, W_UNK, W_CLS, W_SEP, W_HE, W_LLO, W_COMMA, W_ZHONG, W_E, W_ING, W_HELLO };

static void begin_wordpiece(struct fixture *f)
{
    struct vocabulary v = {.kind = "bert", .no_scores = true};

    add(&v, "[PAD]", CONTROL, 0);
    add(&v, "[UNK]", CONTROL, 0);
    add(&v, "[CLS]", CONTROL, 0);
    add(&v, "[SEP]", CONTROL, 0);
    add(&v, SP "he", NORMAL, 0);
    add(&v, "llo", NORMAL, 0);
    add(&v, SP ",", NORMAL, 0);
    add(&v, SP "\xE4\xB8\xAD", NORMAL, 0);
    add(&v, SP "e", NORMAL, 0);
    add(&v, "ing", NORMAL, 0);
    add(&v, SP "hellos", NORMAL, 0);
    begin(f, &v);
    gguf_build_u32(&f->build, "tokenizer.ggml.unknown_token_id", W_UNK);
    gguf_build_u32(&f->build, "tokenizer.ggml.cls_token_id", W_CLS);
    gguf_build_u32(&f->build, "tokenizer.ggml.seperator_token_id", W_SEP);
}

static void wordpiece_takes_the_longest_first(void **state)
{
    struct fixture f;

    (void)state;
    begin_wordpiece(&f);
    open_tokenizer(&f);
    EXPECT(&f, "hello", TOKENIZER_BOS | TOKENIZER_EOS, W_CLS, W_HE, W_LLO, W_SEP);
    EXPECT(&f, "[CLS]hello", TOKENIZER_BOS | PARSE, W_CLS, W_HE, W_LLO);
    EXPECT(&f, "hellos", 0, W_HELLO);
    EXPECT(&f, "hellox he", 0, W_UNK, W_HE); /* all of a word or nothing */
    EXPECT(&f, "llo", 0, W_UNK);
    close_fixture(&f);
}

static void wordpiece_drops_case_and_accents_and_cuts_at_punctuation(void **state)
{
    struct fixture f;

    (void)state;
    begin_wordpiece(&f);
    open_tokenizer(&f);
    EXPECT(&f, "H\xC3\x89llo,\xC3\xA9", 0, W_HE, W_LLO, W_COMMA, W_E);
    EXPECT(&f, "he\xE4\xB8\xADhe", 0, W_HE, W_ZHONG, W_HE);
    EXPECT(&f,
           "h\x01"
           "e\xE2\x80\x8B\xEF\xBF\xBD",
           0, W_HE); /* control and format characters are dropped */
    close_fixture(&f);
}

static void wordpiece_keeps_case_where_asked(void **state)
{
    struct fixture f;

    (void)state;
    begin_wordpiece(&f);
    gguf_build_bool(&f.build, "sluice.tokenizer.lowercase", false);
    open_tokenizer(&f);
    EXPECT(&f, "hello Hello", 0, W_HE, W_LLO, W_UNK);
    close_fixture(&f);
}

static void wordpiece_gives_up_on_long_words(void **state)
{
    char word[102] = "he";
    struct fixture f;

    (void)state;
    begin_wordpiece(&f);
    open_tokenizer(&f);
    for (size_t i = 2; i + 3 <= 98; i += 3)
        memcpy(word + i, "ing", 3);
    assert_int_equal(strlen(word), 98);
    expect_round_trip(&f, word);
    strcpy(word + 98, "ing");
    EXPECT(&f, word, 0, W_UNK);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wordpiece_takes_the_longest_first),
        cmocka_unit_test(wordpiece_drops_case_and_accents_and_cuts_at_punctuation),
        cmocka_unit_test(wordpiece_keeps_case_where_asked),
        cmocka_unit_test(wordpiece_gives_up_on_long_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
