#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "tests/lib/hf_source.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define ADDED(rest) "[{\"id\":3,\"content\":\"<x>\"," rest "}]"
#define MODEL(rest) "{\"type\":\"BPE\",\"vocab\":{\"a\":0}," rest "}"

static void refuses_what_it_does_not_compute(void **state)
{
    static const struct {
        struct hf_source source;
        enum status want;
        const char *text;
    } cases[] = {
        {{.pre_tokenizer = "{\"type\":\"Whitespace\"}"},
         ST_UNSUPPORTED,
         "the pre_tokenizer {\"type\":\"Whitespace\"}"},
        {{.pre_tokenizer = "null"}, ST_UNSUPPORTED, "the pre_tokenizer none"},
        {{.pre_tokenizer = HF_SEQUENCE(HF_REGEX("x+") "," HF_BYTES)},
         ST_UNSUPPORTED,
         "Split(x+) > Bytes"},
        {{.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"},
         ST_UNSUPPORTED,
         "\"add_prefix_space\":true"},
        {{.normalizer = "{\"type\":\"Lowercase\"}"}, ST_UNSUPPORTED, "normalizer"},
        {{.normalizer = HF_SPACES}, ST_UNSUPPORTED, "the normalizer Spaces"},
        {{.pre_tokenizer = HF_SEQUENCE(HF_REGEX(HF_QWEN2) "," HF_BYTES),
          .model = MODEL("\"merges\":[],\"ignore_merges\":true")},
         ST_UNSUPPORTED,
         "ignore_merges true"},
        {{.decoder = "{\"type\":\"CTC\"}"}, ST_UNSUPPORTED, "the decoder {\"type\":\"CTC\"}"},
        {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},"
                     "{\"type\":\"Strip\",\"content\":\"x\",\"start\":1,\"stop\":0}]}"},
         ST_UNSUPPORTED,
         "the decoder {\"content\":\"x\""},
        {{.decoder = "{\"type\":\"WordPiece\",\"prefix\":\"@@\"}"}, ST_UNSUPPORTED, "the decoder"},
        {{.decoder = "7"}, ST_CORRUPT, "the decoder"},
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
        {{.normalizer = HF_SPACES,
          .pre_tokenizer = "null",
          .model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"byte_fallback\":true}"},
         ST_UNSUPPORTED,
         "without a token <0xNN>"},
        {{.pre_tokenizer = HF_METASPACE("always", "true"),
          .model = "{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}"},
         ST_CORRUPT,
         "unk_id"},
        {{.pre_tokenizer = HF_METASPACE("always", "true"),
          .model = "{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}"},
         ST_CORRUPT,
         "vocab"},
        {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A*==\"}",
          .pre_tokenizer = HF_METASPACE("always", "true"),
          .model = "{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}"},
         ST_CORRUPT,
         "base64"},
        {{.added = ADDED("\"single_word\":true")}, ST_UNSUPPORTED, "added token 3 has single_word"},
        {{.added = ADDED("\"lstrip\":1")}, ST_CORRUPT, "added_tokens"},
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
        {{.generation = "{\"eos_token_id\":\"2\"}"}, ST_CORRUPT, "eos_token_id"},
        {{.generation = "{\"eos_token_id\":[-1]}"}, ST_CORRUPT, "eos_token_id"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct reason why = {0};
        struct gguf *g = NULL;
        struct buf bytes;
        enum status s;

        buf_init(&bytes);
        s = hf_source_translate(&cases[i].source, &bytes, &g, &why);
        if (s != cases[i].want || strstr(why.text, cases[i].text) == NULL)
            fail_msg("case %zu: got %s \"%s\", want %s \"%s\"", i, status_name(s), why.text,
                     status_name(cases[i].want), cases[i].text);
        assert_null(g);
        buf_dispose(&bytes);
    }
}

/* normalized asks that a token meet text which the pipeline has changed. Special ones, which no
 * user's text is matched against, are another matter: test_hf_tokenizer.c. */
static void refuses_normalized_tokens_where_text_changes(void **state)
{
    struct hf_source s = {.normalizer = HF_SPACES,
                          .pre_tokenizer = "null",
                          .added = "[{\"id\":270,\"content\":\"<x>\",\"normalized\":true}]"};
    struct reason why = {0};
    struct gguf *g = NULL;
    struct buf model, bytes;

    (void)state;
    buf_init(&model);
    buf_init(&bytes);
    hf_source_space_bpe(&model);
    s.model = buf_cstr(&model);
    assert_int_equal(hf_source_translate(&s, &bytes, &g, &why), ST_UNSUPPORTED);
    assert_non_null(strstr(why.text, "added token 270 has normalized"));
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
        assert_int_equal(hf_tokenizer_put(&files, HF_SOURCE_VOCAB, &m, &why), ST_CORRUPT);
        hf_meta_dispose(&m);
        buf_dispose(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_it_does_not_compute),
        cmocka_unit_test(refuses_normalized_tokens_where_text_changes),
        cmocka_unit_test(refuses_deep_nesting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
