#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/model/hf_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "tests/lib/hf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define N_VOCAB 300
#define BYTES   "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define BYTES_GPT2                                                                                 \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define REGEX(pattern)                                                                             \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                                        \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define SEQUENCE(list)    "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define NORMALIZERS(list) "{\"type\":\"Sequence\",\"normalizers\":[" list "]}"
/* As published tokenizer.json files spell them. */
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "         \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define QWEN2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "              \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define GPT4O                                                                                      \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\"  \
    "p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{"  \
    "Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|" \
    "'ve|'m|'ll|'d)?|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|" \
    "\\\\s+(?!\\\\S)|\\\\s+"
#define DEEPSEEK3                                                                                  \
    REGEX("\\\\p{N}{1,3}")                                                                         \
    "," REGEX("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+") "," REGEX(                             \
        "[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\\\p{L}\\\\p"  \
        "{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+"   \
        "(?!\\\\S)|\\\\s+")
#define SPACE   "\u2581"
#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"" SPACE "\"}"
#define SPACES  "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE "\"}"
#define METASPACE(scheme, split)                                                                   \
    "{\"type\":\"Metaspace\",\"replacement\":\"" SPACE "\",\"prepend_scheme\":\"" scheme           \
    "\",\"split\":" split "}"

/* A tokenizer.json's parts; NULL: as in `plain`. */
struct source {
    const char *normalizer, *pre_tokenizer, *post_processor, *added, *model;
    const char *config, *generation, *model_config, *template;
};

static const struct source plain = {
    .normalizer = "null",
    .pre_tokenizer = BYTES_GPT2,
    .post_processor = "null",
    .added = "[]",
    .model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}",
};

static const char *or_plain(const char *s, const char *otherwise)
{
    return s != NULL ? s : otherwise;
}

static struct hf_span span(const char *s)
{
    return (struct hf_span){s, s != NULL ? strlen(s) : 0};
}

static enum status translate(const struct source *s, struct buf *out, struct gguf **g,
                             struct reason *why)
{
    struct buf text;
    struct hf_tokenizer_files files = {.config = span(s->config),
                                       .generation = span(s->generation),
                                       .model = span(s->model_config),
                                       .chat_template = span(s->template)};
    struct hf_meta m;
    enum status status;

    buf_init(&text);
    buf_printf(&text,
               "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"added_tokens\":%s,"
               "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":%s}",
               or_plain(s->normalizer, plain.normalizer),
               or_plain(s->pre_tokenizer, plain.pre_tokenizer),
               or_plain(s->post_processor, plain.post_processor), or_plain(s->added, plain.added),
               or_plain(s->model, plain.model));
    files.tokenizer = (struct hf_span){text.data, text.len};
    hf_meta_init(&m, "llama");
    status = hf_tokenizer_put(&files, N_VOCAB, &m, why);
    if (status == ST_OK)
        status = hf_meta_finish(&m, out);
    if (status == ST_OK)
        status = gguf_open_memory(out->data, out->len, g, why);
    hf_meta_dispose(&m);
    buf_dispose(&text);
    return status;
}

/* The metadata, which must be made; the caller closes it and disposes of *bytes. */
static struct gguf *made(const struct source *s, struct buf *bytes)
{
    struct reason why = {0};
    struct gguf *g = NULL;

    buf_init(bytes);
    if (translate(s, bytes, &g, &why) != ST_OK)
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
        {BYTES_GPT2, "null", false, "gpt-2"},
        {SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," BYTES_GPT2), "null", false,
         "smollm"},
        {SEQUENCE(REGEX(LLAMA3) "," BYTES), "null", true, "llama-bpe"},
        {SEQUENCE(REGEX(LLAMA3) "," BYTES), "null", false, "dbrx"},
        {SEQUENCE(REGEX(QWEN2) "," BYTES), "{\"type\":\"NFC\"}", false, "qwen2"},
        {SEQUENCE(REGEX(QWEN2) "," BYTES), NORMALIZERS(""), false, "deepseek-r1-qwen"},
        {SEQUENCE(REGEX(GPT4O) "," BYTES), "null", false, "gpt-4o"},
        {SEQUENCE(SEQUENCE(DEEPSEEK3) "," BYTES), "null", false, "deepseek-v3"},
        {SEQUENCE("{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}," BYTES_GPT2
                  ",{\"type\":\"Digits\",\"individual_digits\":false}," REGEX("[0-9][0-9][0-9]")),
         "null", false, "falcon"},
        {SEQUENCE(
             REGEX("[\\r\\n]") "," REGEX("\\\\s?\\\\p{L}+") "," REGEX("\\\\s?\\\\p{P}+") "," REGEX(
                 "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+") ",{\"type\":\"Digits\",\"individual_"
                                                               "digits\":true}," BYTES),
         "null", false, "deepseek-coder"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct source s = {.normalizer = cases[i].normalizer,
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
    const struct source s = {.pre_tokenizer =
                                 SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" LLAMA3
                                          "\"},\"behavior\":\"Removed\",\"invert\":true}," BYTES)};
    struct buf bytes;
    struct gguf *g = made(&s, &bytes);

    (void)state;
    assert_true(has_text(g, "tokenizer.ggml.pre", "dbrx"));
    gguf_close(g);
    buf_dispose(&bytes);
}

static void lists_tokens_merges_and_types(void **state)
{
    const struct source s = {
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
    assert_true(gguf_array(g, "tokenizer.ggml.tokens", &type, &n) && n == N_VOCAB);
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

/* A SentencePiece BPE of all bytes and "<unk>", behind which `more` vocabulary goes. */
static void space_bpe(struct buf *out)
{
    buf_puts(out, "{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{"
                  "\"<unk>\":0,\"<s>\":1,\"</s>\":2");
    for (int i = 0; i < 256; i++)
        buf_printf(out, ",\"<0x%02X>\":%d", (unsigned)i, 3 + i);
    buf_puts(out, ",\"" SPACE "\":259,\"a\":260,\"" SPACE "a\":261},\"merges\":[\"" SPACE " a\"]}");
}

static void knows_how_spaces_begin_a_text(void **state)
{
    static const struct {
        const char *normalizer, *pre_tokenizer;
        bool adds, first_only, unless_space;
    } cases[] = {
        {NORMALIZERS(PREPEND "," SPACES), "null", true, false, false},
        {SPACES, "null", false, false, false},
        {SPACES,
         "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"MergedWithPrevious\","
         "\"invert\":false}",
         false, false, false},
        {"null", METASPACE("first", "false"), true, true, true},
        {"null", METASPACE("always", "false"), true, false, true},
        {"null", METASPACE("never", "false"), false, false, false},
    };
    struct buf model;

    (void)state;
    buf_init(&model);
    space_bpe(&model);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const struct source s = {.normalizer = cases[i].normalizer,
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
    const struct source s = {
        .normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAECAwT/\"}",
        .pre_tokenizer = SEQUENCE("{\"type\":\"WhitespaceSplit\"}," METASPACE("always", "true")),
        .model = "{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"<pad>\",0.0],[\"<unk>\",0],"
                 "[\"" SPACE "a\",-2.5e0]]}"};
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
                n == N_VOCAB);
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
    const struct source s = {
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
    assert_true(has_token(g, 3, SPACE "play", 1));
    assert_true(has_token(g, 4, "ing", 1));
    assert_true(has_token(g, 5, SPACE "##", 1));
    assert_true(has_u32(g, "tokenizer.ggml.bos_token_id", 1));
    assert_true(has_u32(g, "tokenizer.ggml.eos_token_id", 2));
    assert_true(is_true(g, "tokenizer.ggml.add_bos_token"));
    assert_true(is_true(g, "tokenizer.ggml.add_eos_token"));
    gguf_close(g);
    buf_dispose(&bytes);
}

static void finds_special_tokens(void **state)
{
    const struct source s = {
        .added = "[{\"id\":3,\"content\":\"<s>\",\"special\":true},"
                 "{\"id\":4,\"content\":\"</s>\",\"special\":true}]",
        .config = "{\"bos_token\":{\"__type\":\"AddedToken\",\"content\":\"<s>\"},"
                  "\"eos_token\":\"</s>\",\"pad_token\":\"<gone>\",\"add_bos_token\":true}",
        .generation = "{\"eos_token_id\":[4,2]}",
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
        const struct source s = {.post_processor = cases[i].post_processor,
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
    const struct source list = {.config = named}, file = {.config = named, .template = "three"},
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

#define ADDED(rest) "[{\"id\":3,\"content\":\"<x>\"," rest "}]"
#define MODEL(rest) "{\"type\":\"BPE\",\"vocab\":{\"a\":0}," rest "}"

static void refuses_what_it_does_not_compute(void **state)
{
    static const struct {
        struct source source;
        enum status want;
        const char *text;
    } cases[] = {
        {{.pre_tokenizer = "{\"type\":\"Whitespace\"}"},
         ST_UNSUPPORTED,
         "the pre_tokenizer {\"type\":\"Whitespace\"}"},
        {{.pre_tokenizer = "null"}, ST_UNSUPPORTED, "the pre_tokenizer none"},
        {{.pre_tokenizer = SEQUENCE(REGEX("x+") "," BYTES)}, ST_UNSUPPORTED, "Split(x+) > Bytes"},
        {{.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"},
         ST_UNSUPPORTED,
         "\"add_prefix_space\":true"},
        {{.normalizer = "{\"type\":\"Lowercase\"}"}, ST_UNSUPPORTED, "normalizer"},
        {{.normalizer = SPACES}, ST_UNSUPPORTED, "the normalizer Spaces"},
        {{.pre_tokenizer = SEQUENCE(REGEX(QWEN2) "," BYTES),
          .model = MODEL("\"merges\":[],\"ignore_merges\":true")},
         ST_UNSUPPORTED,
         "ignore_merges true"},
        {{.post_processor = "{\"type\":\"RobertaProcessing\"}"},
         ST_UNSUPPORTED,
         "RobertaProcessing"},
        {{.post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
                            "\"id\":\"a\"}}],\"special_tokens\":{}}"},
         ST_UNSUPPORTED,
         "post_processor"},
        {{.post_processor = "{\"type\":\"BertProcessing\",\"sep\":[\"x\",7],\"cls\":[\"y\",4000]}"},
         ST_CORRUPT,
         "names no token"},
        {{.model = "{\"type\":\"WordLevel\",\"vocab\":{}}"}, ST_UNSUPPORTED, "\"WordLevel\""},
        {{.model = "{\"type\":\"BPE\"}"}, ST_CORRUPT, "no vocab"},
        {{.model = MODEL("\"dropout\":0.1")}, ST_UNSUPPORTED, "dropout"},
        {{.model = MODEL("\"end_of_word_suffix\":\"</w>\"")}, ST_UNSUPPORTED, "end_of_word_suffix"},
        {{.model = MODEL("\"merges\":[\"ab\"]")}, ST_CORRUPT, "merges"},
        {{.model = MODEL("\"merges\":[[\"a\",\"b\",\"c\"]]")}, ST_CORRUPT, "merges"},
        {{.model = MODEL("\"merges\":[[\"a\",\"b c\"]]")}, ST_CORRUPT, "without spaces"},
        {{.model = MODEL("\"merges\":[\"a \"]")}, ST_CORRUPT, "without spaces"},
        {{.model = MODEL("\"merges\":[1]")}, ST_CORRUPT, "merges"},
        {{.model = MODEL("\"merges\":7")}, ST_CORRUPT, "merges"},
        {{.model = MODEL("\"unk_token\":\"zz\"")}, ST_CORRUPT, "unk_token"},
        {{.model = MODEL("\"vocab\":{}")}, ST_CORRUPT, "vocab twice"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"},
         ST_CORRUPT,
         "two tokens have the id 0"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u0061\":1},\"merges\":[]}"},
         ST_CORRUPT,
         "are the same text"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":300},\"merges\":[]}"},
         ST_CORRUPT,
         "token id 300, but an embedding of 300 rows"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":18446744073709551615},\"merges\":[]}"},
         ST_CORRUPT,
         "token id 18446744073709551615"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":18446744073709551616},\"merges\":[]}"},
         ST_CORRUPT,
         "vocab"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}"}, ST_CORRUPT, "vocab"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"\\ud800\":1},\"merges\":[]}"},
         ST_CORRUPT,
         "surrogate"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"\\u0000\":1},\"merges\":[]}"},
         ST_CORRUPT,
         "NUL"},
        {{.model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":true}"},
         ST_UNSUPPORTED,
         "pre_tokenizer"},
        {{.normalizer = SPACES,
          .pre_tokenizer = "null",
          .model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":true}"},
         ST_UNSUPPORTED,
         "without a token <0xNN>"},
        {{.pre_tokenizer = METASPACE("always", "true"),
          .model = "{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}"},
         ST_CORRUPT,
         "unk_id"},
        {{.pre_tokenizer = METASPACE("always", "true"),
          .model = "{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}"},
         ST_CORRUPT,
         "vocab"},
        {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A*==\"}",
          .pre_tokenizer = METASPACE("always", "true"),
          .model = "{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}"},
         ST_CORRUPT,
         "base64"},
        {{.added = ADDED("\"lstrip\":true")}, ST_UNSUPPORTED, "added token 3 has lstrip"},
        {{.added = ADDED("\"rstrip\":true")}, ST_UNSUPPORTED, "has rstrip"},
        {{.added = ADDED("\"single_word\":true")}, ST_UNSUPPORTED, "has single_word"},
        {{.added = ADDED("\"special\":1")}, ST_CORRUPT, "added_tokens"},
        {{.added = "[{\"id\":3}]"}, ST_CORRUPT, "added_tokens"},
        {{.added = "[{\"id\":0,\"content\":\"x\"}]"}, ST_CORRUPT, "two tokens have the id 0"},
        {{.added = "[{\"id\":7,\"content\":\"a\"}]"}, ST_CORRUPT, "are the same text"},
        {{.config = "{\"add_bos_token\":true}"}, ST_CORRUPT, "names none"},
        {{.config = "{\"bos_token\":7}"}, ST_CORRUPT, "special token"},
        {{.config = "{\"bos_token\":\"a\",\"bos_token\":\"b\"}"}, ST_CORRUPT, "bos_token twice"},
        {{.config = "{\"chat_template\":7}"}, ST_CORRUPT, "chat template"},
        {{.config = "{\"chat_template\":[{\"name\":\"a.b\",\"template\":\"\"}]}"},
         ST_CORRUPT,
         "no plain word"},
        {{.config = "{\"chat_template\":[{\"name\":\"x\",\"template\":\"1\"},"
                    "{\"name\":\"x\",\"template\":\"2\"}]}"},
         ST_CORRUPT,
         "tokenizer.chat_template.x is there twice"},
        {{.generation = "{\"eos_token_id\":300}"}, ST_CORRUPT, "eos_token_id"},
        {{.generation = "{\"eos_token_id\":[-1]}"}, ST_CORRUPT, "eos_token_id"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct reason why = {0};
        struct gguf *g = NULL;
        struct buf bytes;
        enum status s;

        buf_init(&bytes);
        s = translate(&cases[i].source, &bytes, &g, &why);
        if (s != cases[i].want || strstr(why.text, cases[i].text) == NULL)
            fail_msg("case %zu: got %s \"%s\", want %s \"%s\"", i, status_name(s), why.text,
                     status_name(cases[i].want), cases[i].text);
        assert_null(g);
        buf_dispose(&bytes);
    }
}

/* normalized asks that a token meet text which the pipeline has changed. */
static void refuses_normalized_tokens_where_text_changes(void **state)
{
    struct source s = {.normalizer = SPACES,
                       .pre_tokenizer = "null",
                       .added = "[{\"id\":270,\"content\":\"<x>\",\"normalized\":true}]"};
    struct reason why = {0};
    struct gguf *g = NULL;
    struct buf model, bytes;

    (void)state;
    buf_init(&model);
    buf_init(&bytes);
    space_bpe(&model);
    s.model = buf_cstr(&model);
    assert_int_equal(translate(&s, &bytes, &g, &why), ST_UNSUPPORTED);
    assert_non_null(strstr(why.text, "added token 270 has normalized"));
    buf_dispose(&model);
    buf_dispose(&bytes);
}

/* Merges are checked where the vocabulary is: engine/text refuses the file. */
static void merges_of_missing_tokens_make_no_tokenizer(void **state)
{
    const struct source s = {.model = MODEL("\"merges\":[\"a zz\"]")};
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
    struct source s = {.normalizer = "null",
                       .pre_tokenizer = METASPACE("first", "false"),
                       .added = "[{\"id\":270,\"content\":\"<x>\",\"special\":true}]"};
    struct token_ids ids = {0};
    struct tokenizer *t = NULL;
    struct buf model, bytes;
    struct gguf *g;

    (void)state;
    buf_init(&model);
    space_bpe(&model);
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

static void refuses_deep_nesting(void **state)
{
    static const char *const heads[] = {"{\"a\":", "{\"model\":{\"vocab\":", "{\"normalizer\":"};
    struct reason why = {0};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        struct hf_tokenizer_files files = {.config = {NULL, 0}};
        struct hf_meta m;
        struct buf text;

        buf_init(&text);
        buf_puts(&text, heads[i]);
        for (int k = 0; k < 1000000; k++)
            buf_putc(&text, '[');
        files.tokenizer = (struct hf_span){text.data, text.len};
        hf_meta_init(&m, "llama");
        assert_int_equal(hf_tokenizer_put(&files, N_VOCAB, &m, &why), ST_CORRUPT);
        hf_meta_dispose(&m);
        buf_dispose(&text);
    }
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
        cmocka_unit_test(refuses_what_it_does_not_compute),
        cmocka_unit_test(refuses_normalized_tokens_where_text_changes),
        cmocka_unit_test(merges_of_missing_tokens_make_no_tokenizer),
        cmocka_unit_test(the_first_space_is_put_as_asked_or_refused),
        cmocka_unit_test(refuses_deep_nesting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
