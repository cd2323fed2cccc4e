#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/text/tokenizer.h"
#include "tests/lib/hf_source.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* The metadata, which must be made; the caller closes it and disposes of *bytes. */
static struct gguf *made(const struct hf_source *s, struct buf *bytes)
{
    struct reason why = {0};
    struct gguf *g = NULL;

    buf_init(bytes);
    if (hf_source_translate(s, bytes, &g, &why) != ST_OK)
        fail_msg("%s", why.text);
    return g;
}

static bool has_text(const struct gguf *g, const char *key, const char *want)
{
    struct gguf_string s;

    return gguf_get_string(g, key, &s) && s.len == strlen(want) && memcmp(s.data, want, s.len) == 0;
}

static bool has_token(const struct gguf *g, size_t id, const char *want, int32_t want_type)
{
    struct gguf_string s;
    int32_t type;

    return gguf_array_string(g, "tokenizer.ggml.tokens", id, &s) && s.len == strlen(want) &&
           memcmp(s.data, want, s.len) == 0 &&
           gguf_array_i32(g, "tokenizer.ggml.token_type", id, &type) && type == want_type;
}

static bool has_u32(const struct gguf *g, const char *key, uint32_t want)
{
    uint32_t v;

    return gguf_get_u32(g, key, &v) && v == want;
}

static bool is_true(const struct gguf *g, const char *key)
{
    bool b;

    return gguf_get_bool(g, key, &b) && b;
}

static void recognises_pre_tokenizers(void **state)
{
    static const struct {
        const char *pre_tokenizer, *normalizer;
        bool ignore_merges;
        const char *want;
    } cases[] = {
        {HF_BYTES_GPT2, "null", false, "gpt-2"},
        {HF_SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," HF_BYTES_GPT2), "null",
         false, "smollm"},
        {HF_SEQUENCE(HF_REGEX(HF_LLAMA3) "," HF_BYTES), "null", true, "llama-bpe"},
        {HF_SEQUENCE(HF_REGEX(HF_LLAMA3) "," HF_BYTES), "null", false, "dbrx"},
        {HF_SEQUENCE(HF_REGEX(HF_QWEN2) "," HF_BYTES), "{\"type\":\"NFC\"}", false, "qwen2"},
        {HF_SEQUENCE(HF_REGEX(HF_QWEN2) "," HF_BYTES), HF_NORMALIZERS(""), false,
         "sluice.qwen2-as-given"},
        {HF_SEQUENCE(HF_REGEX(HF_GPT4O) "," HF_BYTES), "null", false, "gpt-4o"},
        {HF_SEQUENCE(HF_SEQUENCE(HF_DEEPSEEK3) "," HF_BYTES), "null", false, "deepseek-v3"},
        {HF_SEQUENCE(
             "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}," HF_BYTES_GPT2
             ",{\"type\":\"Digits\",\"individual_digits\":false}," HF_REGEX("[0-9][0-9][0-9]")),
         "null", false, "falcon"},
        {HF_SEQUENCE(HF_REGEX("[\\r\\n]") "," HF_REGEX("\\\\s?\\\\p{L}+") "," HF_REGEX(
             "\\\\s?\\\\p{P}+") "," HF_REGEX("[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]"
                                             "+") ",{\"type\":\"Digits\",\"individual_"
                                                  "digits\":true}," HF_BYTES),
         "null", false, "deepseek-coder"},
        /* the class of cased letters without its middle */
        {HF_SEQUENCE(HF_REGEX("[\\r\\n]") "," HF_REGEX(
             "\\\\s?[A-Za-z\u00B5\u00C0-\u00D6\U0001E900-"
             "\U0001E943]+") "," HF_REGEX("\\\\s?[!-/"
                                          ":-~\uFF01-"
                                          "\uFF0F\uFF1A-"
                                          "\uFF5E\u2018-"
                                          "\u201F\u3000-"
                                          "\u3002]+") "," HF_REGEX("\\\\s+$") "," HF_REGEX("[\u4E00"
                                                                                           "-\u9FA5"
                                                                                           "\u0800-"
                                                                                           "\u4E00"
                                                                                           "\uAC00-"
                                                                                           "\uD7FF]"
                                                                                           "+") ","
                                                                                                "{"
                                                                                                "\""
                                                                                                "ty"
                                                                                                "pe"
                                                                                                "\""
                                                                                                ":"
                                                                                                "\""
                                                                                                "Di"
                                                                                                "gi"
                                                                                                "ts"
                                                                                                "\""
                                                                                                ","
                                                                                                "\""
                                                                                                "in"
                                                                                                "di"
                                                                                                "vi"
                                                                                                "du"
                                                                                                "al"
                                                                                                "_"
                                                                                                "di"
                                                                                                "gi"
                                                                                                "ts"
                                                                                                "\""
                                                                                                ":t"
                                                                                                "ru"
                                                                                                "e}"
                                                                                                "," HF_BYTES),
         "null", false, "deepseek-llm"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct hf_source s = {.normalizer = cases[i].normalizer,
                                    .pre_tokenizer = cases[i].pre_tokenizer,
                                    .model = cases[i].ignore_merges
                                                 ? "{\"vocab\":{\"a\":0},\"merges\":[],"
                                                   "\"ignore_merges\":true}"
                                                 : NULL};
        struct buf bytes;
        struct gguf *g = made(&s, &bytes);

        if (!has_text(g, "tokenizer.ggml.pre", cases[i].want))
            fail_msg("not recognised as %s", cases[i].want);
        assert_true(has_text(g, "tokenizer.ggml.model", "gpt2"));
        gguf_close(g);
        buf_dispose(&bytes);
    }
}

/* The inverted pattern with its rest dropped cuts at the same places. */
static void takes_removed_inverted_for_isolated(void **state)
{
    const struct hf_source s = {
        .pre_tokenizer = HF_SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" HF_LLAMA3
                                     "\"},\"behavior\":\"Removed\",\"invert\":true}," HF_BYTES)};
    struct buf bytes;
    struct gguf *g = made(&s, &bytes);

    (void)state;
    assert_true(has_text(g, "tokenizer.ggml.pre", "dbrx"));
    gguf_close(g);
    buf_dispose(&bytes);
}

static void lists_tokens_merges_and_types(void **state)
{
    const struct hf_source s = {
        .added = "[{\"id\":3,\"content\":\"<|end|>\",\"special\":true},"
                 "{\"id\":4,\"content\":\"<think>\",\"special\":false,\"normalized\":true},"
                 "{\"id\":1,\"content\":\"b\",\"special\":false},"
                 "{\"id\":300,\"content\":\"<image>\",\"special\":true}]",
        .model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u0062\":1,\"ab\":2,\"\\\"\":9},"
                 "\"merges\":[[\"a\",\"b\"],\"a ab\"]}"};
    struct buf bytes;
    struct gguf *g = made(&s, &bytes);
    struct gguf_string merge;
    enum gguf_type type;
    size_t n;

    (void)state;
    assert_true(gguf_array(g, "tokenizer.ggml.tokens", &type, &n) && n == HF_SOURCE_VOCAB);
    assert_true(has_token(g, 0, "a", 1));
    assert_true(has_token(g, 1, "b", 4));
    assert_true(has_token(g, 2, "ab", 1));
    assert_true(has_token(g, 3, "<|end|>", 3));
    assert_true(has_token(g, 4, "<think>", 4));
    assert_true(has_token(g, 5, "[PAD5]", 5));
    assert_true(has_token(g, 9, "\"", 1));
    assert_true(has_token(g, 299, "[PAD299]", 5));
    assert_true(gguf_array(g, "tokenizer.ggml.merges", &type, &n) && n == 2);
    assert_true(gguf_array_string(g, "tokenizer.ggml.merges", 0, &merge) && merge.len == 3 &&
                memcmp(merge.data, "a b", 3) == 0);
    gguf_close(g);
    buf_dispose(&bytes);
}

static void knows_how_spaces_begin_a_text(void **state)
{
    static const struct {
        const char *normalizer, *pre_tokenizer;
        bool adds, first_only, unless_space;
    } cases[] = {
        {HF_NORMALIZERS(HF_PREPEND "," HF_SPACES), "null", true, false, false},
        {HF_SPACES, "null", false, false, false},
        {HF_SPACES,
         "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\","
         "\"invert\":false}",
         false, false, false},
        {"null", HF_METASPACE("first", "false"), true, true, true},
        {"null", HF_METASPACE("always", "false"), true, false, true},
        {"null", HF_METASPACE("never", "false"), false, false, false},
    };
    struct buf model;

    (void)state;
    buf_init(&model);
    hf_source_space_bpe(&model);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct hf_source s = {.normalizer = cases[i].normalizer,
                                    .pre_tokenizer = cases[i].pre_tokenizer,
                                    .model = buf_cstr(&model)};
        struct buf bytes;
        struct gguf *g = made(&s, &bytes);

        assert_true(has_text(g, "tokenizer.ggml.model", "llama"));
        assert_true(has_token(g, 0, "<unk>", 2));
        assert_true(has_token(g, 13, "<0x0A>", 6));
        assert_int_equal(is_true(g, "tokenizer.ggml.add_space_prefix"), cases[i].adds);
        assert_int_equal(is_true(g, "sluice.space_prefix.first_only"), cases[i].first_only);
        assert_int_equal(is_true(g, "sluice.space_prefix.unless_space"), cases[i].unless_space);
        assert_false(gguf_has(g, "tokenizer.ggml.scores"));
        gguf_close(g);
        buf_dispose(&bytes);
    }
    buf_dispose(&model);
}

static void reads_unigram(void **state)
{
    const struct hf_source s = {
        .normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAECAwT/\"}",
        .pre_tokenizer =
            HF_SEQUENCE("{\"type\":\"WhitespaceSplit\"}," HF_METASPACE("always", "true")),
        .model = "{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"<pad>\",0.0],[\"<unk>\",0],"
                 "[\"" HF_SPACE "a\",-2.5e0]]}"};
    struct buf bytes;
    struct gguf *g = made(&s, &bytes);
    enum gguf_type type;
    int32_t byte;
    size_t n;

    (void)state;
    assert_true(has_text(g, "tokenizer.ggml.model", "t5"));
    assert_true(has_token(g, 1, "<unk>", 2));
    assert_true(has_u32(g, "tokenizer.ggml.unknown_token_id", 1));
    assert_true(gguf_array(g, "tokenizer.ggml.scores", &type, &n) && type == GGUF_F32 &&
                n == HF_SOURCE_VOCAB);
    assert_true(gguf_array(g, "tokenizer.ggml.precompiled_charsmap", &type, &n) &&
                type == GGUF_U8 && n == 6);
    assert_true(gguf_array_i32(g, "tokenizer.ggml.precompiled_charsmap", 5, &byte) && byte == 255);
    assert_true(gguf_array_i32(g, "tokenizer.ggml.precompiled_charsmap", 3, &byte) && byte == 3);
    assert_true(is_true(g, "tokenizer.ggml.remove_extra_whitespaces"));
    gguf_close(g);
    buf_dispose(&bytes);
}

static void reads_word_piece(void **state)
{
    const struct hf_source s = {
        .normalizer = "{\"type\":\"BertNormalizer\",\"clean_text\":true,"
                      "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true}",
        .pre_tokenizer = "{\"type\":\"BertPreTokenizer\"}",
        .post_processor =
            "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\","
            "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{"
            "\"id\":\"[SEP]\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"[CLS]\":{"
            "\"id\":\"[CLS]\",\"ids\":[1],\"tokens\":[\"[CLS]\"]},\"[SEP]\":{\"id\":\"[SEP]\","
            "\"ids\":[2],\"tokens\":[\"[SEP]\"]}}}",
        .added = "[{\"id\":1,\"content\":\"[CLS]\",\"special\":true},"
                 "{\"id\":2,\"content\":\"[SEP]\",\"special\":true}]",
        .model =
            "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
            "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,"
            "\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,\"[SEP]\":2,\"play\":3,\"##ing\":4,\"##\":5}}"};
    struct buf bytes;
    struct gguf *g = made(&s, &bytes);

    (void)state;
    assert_true(has_text(g, "tokenizer.ggml.model", "bert"));
    assert_true(has_token(g, 0, "[UNK]", 2));
    assert_true(has_token(g, 1, "[CLS]", 3));
    assert_true(has_token(g, 3, HF_SPACE "play", 1));
    assert_true(has_token(g, 4, "ing", 1));
    assert_true(has_token(g, 5, HF_SPACE "##", 1));
    assert_true(has_u32(g, "tokenizer.ggml.bos_token_id", 1));
    assert_true(has_u32(g, "tokenizer.ggml.eos_token_id", 2));
    assert_true(is_true(g, "tokenizer.ggml.add_bos_token"));
    assert_true(is_true(g, "tokenizer.ggml.add_eos_token"));
    gguf_close(g);
    buf_dispose(&bytes);
}

static void finds_special_tokens(void **state)
{
    const struct hf_source s = {
        .added = "[{\"id\":3,\"content\":\"<s>\",\"special\":true},"
                 "{\"id\":4,\"content\":\"</s>\",\"special\":true}]",
        .config = "{\"bos_token\":{\"__type\":\"AddedToken\",\"content\":\"<s>\"},"
                  "\"eos_token\":\"</s>\",\"pad_token\":\"<gone>\",\"add_bos_token\":true}",
        .generation = "{\"eos_token_id\":[4,2,300]}",
        .model_config = "{\"eos_token_id\":2,\"bos_token_id\":null}"};
    struct buf bytes;
    struct gguf *g = made(&s, &bytes);
    enum gguf_type type;
    int32_t id;
    size_t n;

    (void)state;
    assert_true(has_u32(g, "tokenizer.ggml.bos_token_id", 3));
    assert_true(has_u32(g, "tokenizer.ggml.eos_token_id", 4));
    assert_false(gguf_has(g, "tokenizer.ggml.padding_token_id"));
    assert_true(is_true(g, "tokenizer.ggml.add_bos_token"));
    assert_false(is_true(g, "tokenizer.ggml.add_eos_token"));
    assert_true(gguf_array(g, "sluice.eog_token_ids", &type, &n) && n == 2);
    assert_true(gguf_array_i32(g, "sluice.eog_token_ids", 0, &id) && id == 4);
    assert_true(gguf_array_i32(g, "sluice.eog_token_ids", 1, &id) && id == 2);
    gguf_close(g);
    buf_dispose(&bytes);
}

/* What the post-processor says goes before tokenizer_config.json. */
static void adds_bos_as_the_template_says(void **state)
{
    static const char bos_first[] =
        "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":"
        "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"a\":{\"id\":\"a\","
        "\"ids\":[0],\"tokens\":[\"a\"]}}}]}";
    static const char nothing[] =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\"}}],"
        "\"special_tokens\":{}}";
    static const struct {
        const char *post_processor, *config;
        bool adds;
    } cases[] = {
        {bos_first, NULL, true},
        {bos_first, "{\"add_bos_token\":false}", true},
        {nothing, "{\"add_bos_token\":true,\"bos_token\":\"a\"}", false},
        {"null", "{\"add_bos_token\":true,\"bos_token\":\"a\"}", true},
        {"null", "{\"bos_token\":\"a\"}", false},
        {"null", NULL, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct hf_source s = {.post_processor = cases[i].post_processor,
                                    .config = cases[i].config};
        struct buf bytes;
        struct gguf *g = made(&s, &bytes);

        if (is_true(g, "tokenizer.ggml.add_bos_token") != cases[i].adds)
            fail_msg("case %zu", i);
        gguf_close(g);
        buf_dispose(&bytes);
    }
}

static void finds_chat_templates(void **state)
{
    static const char named[] =
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"one\\n\"},"
        "{\"name\":\"tool_use\",\"template\":\"two\"}]}";
    const struct hf_source list = {.config = named}, file = {.config = named, .template = "three"},
                           single = {.config = "{\"chat_template\":\"four\"}"};
    struct buf bytes;
    struct gguf *g = made(&list, &bytes);

    (void)state;
    assert_true(has_text(g, "tokenizer.chat_template", "one\n"));
    assert_true(has_text(g, "tokenizer.chat_template.tool_use", "two"));
    gguf_close(g);
    buf_dispose(&bytes);
    g = made(&file, &bytes);
    assert_true(has_text(g, "tokenizer.chat_template", "three"));
    gguf_close(g);
    buf_dispose(&bytes);
    g = made(&single, &bytes);
    assert_true(has_text(g, "tokenizer.chat_template", "four"));
    gguf_close(g);
    buf_dispose(&bytes);
}

/* Merges are checked where the vocabulary is: engine/text refuses the file. */
static void merges_of_missing_tokens_make_no_tokenizer(void **state)
{
    const struct hf_source s = {.model =
                                    "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a zz\"]}"};
    struct tokenizer *t = NULL;
    struct reason why = {0};
    struct buf bytes;
    struct gguf *g = made(&s, &bytes);

    (void)state;
    assert_int_equal(tokenizer_new(g, &t, &why), ST_CORRUPT);
    assert_null(t);
    gguf_close(g);
    buf_dispose(&bytes);
}

/* The space before a text that Metaspace means is not the one that Prepend puts before every
 * stretch. A tokenizer that knows no such keys must refuse the kind, or its ids are wrong.
 * Reference: PyPI tokenizers, Metaspace(prepend_scheme="first", split=False). */
static void the_first_space_is_put_as_asked_or_refused(void **state)
{
    static const char text[] = "a<x>a", spaced[] = " a";
    const struct text_span first = {text, sizeof text - 1, true},
                           second = {spaced, sizeof spaced - 1, true};
    struct hf_source s = {.normalizer = "null",
                          .pre_tokenizer = HF_METASPACE("first", "false"),
                          .added = "[{\"id\":270,\"content\":\"<x>\",\"special\":true}]"};
    struct token_ids ids = {0};
    struct tokenizer *t = NULL;
    struct buf model, bytes;
    struct gguf *g;

    (void)state;
    buf_init(&model);
    hf_source_space_bpe(&model);
    s.model = buf_cstr(&model);
    g = made(&s, &bytes);
    if (tokenizer_new(g, &t, NULL) == ST_OK) {
        assert_int_equal(tokenizer_encode(t, &first, 1, false, 100, &ids), ST_OK);
        assert_int_equal(tokenizer_encode(t, &second, 1, false, 100, &ids), ST_OK);
        assert_int_equal(ids.n, 4);
        assert_int_equal(ids.ids[0], 261); /* with its space */
        assert_int_equal(ids.ids[1], 270);
        assert_int_equal(ids.ids[2], 260); /* without */
        assert_int_equal(ids.ids[3], 261); /* its own space is enough */
    }
    token_ids_dispose(&ids);
    tokenizer_free(t);
    gguf_close(g);
    buf_dispose(&model);
    buf_dispose(&bytes);
}

/* An added token of Phi-3's (rstrip), one of RoBERTa's (lstrip) and those of older Llama 2 folders
 * (normalized, which counts for nothing on special tokens). Reference: PyPI tokenizers 0.23.3, with
 * these tokens not normalized. */
static void takes_tokens_with_their_white_space(void **state)
{
    static const char text[] = "<s><r>\n a <l>a";
    static const int32_t want[] = {1, 270, 261, 271, 261};
    struct hf_source s = {
        .normalizer = HF_NORMALIZERS(HF_PREPEND "," HF_SPACES),
        .pre_tokenizer = "null",
        .added = "[{\"id\":0,\"content\":\"<unk>\",\"special\":true,\"normalized\":true},"
                 "{\"id\":1,\"content\":\"<s>\",\"special\":true,\"normalized\":true},"
                 "{\"id\":270,\"content\":\"<r>\",\"special\":true,\"rstrip\":true},"
                 "{\"id\":271,\"content\":\"<l>\",\"special\":true,\"lstrip\":true},"
                 "{\"id\":300,\"content\":\"<gone>\",\"rstrip\":true}]"};
    struct token_ids ids = {0};
    struct tokenizer *t = NULL;
    struct buf model, bytes;
    struct gguf *g;
    enum gguf_type type;
    int32_t id;
    size_t n;

    (void)state;
    buf_init(&model);
    hf_source_space_bpe(&model);
    s.model = buf_cstr(&model);
    g = made(&s, &bytes);
    assert_true(gguf_array(g, "sluice.token_lstrip", &type, &n) && type == GGUF_I32 && n == 1);
    assert_true(gguf_array_i32(g, "sluice.token_lstrip", 0, &id) && id == 271);
    assert_true(gguf_array(g, "sluice.token_rstrip", &type, &n) && type == GGUF_I32 && n == 1);
    assert_true(gguf_array_i32(g, "sluice.token_rstrip", 0, &id) && id == 270);
    assert_int_equal(tokenizer_new(g, &t, NULL), ST_OK);
    assert_int_equal(
        tokenizer_encode(t, &(struct text_span){text, sizeof text - 1, true}, 1, 0, 100, &ids),
        ST_OK);
    assert_int_equal(ids.n, COUNT_OF(want));
    assert_memory_equal(ids.ids, want, sizeof want);
    token_ids_dispose(&ids);
    tokenizer_free(t);
    gguf_close(g);
    buf_dispose(&model);
    buf_dispose(&bytes);
}

/* So that what is known of an architecture's GGUF files is not held against a folder. */
static void says_that_no_token_takes_white_space(void **state)
{
    static const char *const keys[] = {"sluice.token_lstrip", "sluice.token_rstrip"};
    const struct hf_source s = {.added = "[{\"id\":3,\"content\":\"<|end|>\",\"special\":true}]"};
    struct buf bytes;
    struct gguf *g = made(&s, &bytes);
    enum gguf_type type;
    size_t n;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        assert_true(gguf_array(g, keys[i], &type, &n) && type == GGUF_I32 && n == 0);
    gguf_close(g);
    buf_dispose(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recognises_pre_tokenizers),
        cmocka_unit_test(takes_removed_inverted_for_isolated),
        cmocka_unit_test(lists_tokens_merges_and_types),
        cmocka_unit_test(knows_how_spaces_begin_a_text),
        cmocka_unit_test(reads_unigram),
        cmocka_unit_test(reads_word_piece),
        cmocka_unit_test(finds_special_tokens),
        cmocka_unit_test(adds_bos_as_the_template_says),
        cmocka_unit_test(finds_chat_templates),
        cmocka_unit_test(merges_of_missing_tokens_make_no_tokenizer),
        cmocka_unit_test(the_first_space_is_put_as_asked_or_refused),
        cmocka_unit_test(takes_tokens_with_their_white_space),
        cmocka_unit_test(says_that_no_token_takes_white_space),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
