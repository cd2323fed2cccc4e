/* Added tokens that take white space along (lstrip, rstrip), on a small SentencePiece BPE. Expected
 * ids are those of PyPI tokenizers 0.23.3 for models.BPE of this vocabulary with the merge "U+2581
 * a", unk_token "<unk>", fuse_unk, the normalizers Prepend(U+2581) and Replace(" ", U+2581), and
 * these added tokens; text of a user's is there with "<q>" in the place of a special token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/text/detok.h"
#include "engine/text/tokenizer.h"
#include "tests/lib/gguf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define SP "\xE2\x96\x81" /* U+2581 */

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4 };
enum { UNK, BOS, EOS, SPACE, A, SPACE_A, B, LINE, RIGHT, LEFT, BOTH, THINK, N_TOKENS };

static const char *const texts[N_TOKENS] = {
    "<unk>", "<s>", "</s>", SP, "a", SP "a", "b", "\n", "<r>", "<l>", "<b>", "<think>",
};
static const int32_t types[N_TOKENS] = {
    UNKNOWN, CONTROL, USER, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, CONTROL, CONTROL, CONTROL, USER,
};
static const char *const merges[] = {SP " a"};
static const int32_t left[] = {LEFT, BOTH, THINK}, right[] = {EOS, RIGHT, BOTH, THINK};

struct fixture {
    struct gguf_build build;
    struct buf file;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

static void begin(struct fixture *f, const char *const *tokens)
{
    *f = (struct fixture){0};
    gguf_build_init(&f->build);
    gguf_build_string(&f->build, "tokenizer.ggml.model", "llama");
    gguf_build_strings(&f->build, "tokenizer.ggml.tokens", tokens, N_TOKENS);
    gguf_build_i32s(&f->build, "tokenizer.ggml.token_type", types, N_TOKENS);
    gguf_build_strings(&f->build, "tokenizer.ggml.merges", merges, COUNT_OF(merges));
    gguf_build_u32(&f->build, "tokenizer.ggml.bos_token_id", BOS);
}

static enum status try_open(struct fixture *f, struct reason *why)
{
    gguf_build_finish(&f->build, &f->file);
    assert_int_equal(gguf_open_memory(f->file.data, f->file.len, &f->gguf, NULL), ST_OK);
    return tokenizer_new(f->gguf, &f->tokenizer, why);
}

static void open_tokenizer(struct fixture *f)
{
    struct reason why = {0};

    if (try_open(f, &why) != ST_OK)
        fail_msg("%s", why.text);
}

static void open_with_strips(struct fixture *f)
{
    begin(f, texts);
    gguf_build_i32s(&f->build, "sluice.token_lstrip", left, COUNT_OF(left));
    gguf_build_i32s(&f->build, "sluice.token_rstrip", right, COUNT_OF(right));
    open_tokenizer(f);
}

static void close_fixture(struct fixture *f)
{
    tokenizer_free(f->tokenizer);
    gguf_close(f->gguf);
    buf_dispose(&f->file);
    gguf_build_dispose(&f->build);
}

/* A text in spans; ids end with -1. */
struct encoded {
    struct text_span spans[4];
    int32_t ids[8];
};

#define CHAT(s)                                                                                    \
    {                                                                                              \
        s, sizeof(s) - 1, true                                                                     \
    }
#define TEXT(s)                                                                                    \
    {                                                                                              \
        s, sizeof(s) - 1, false                                                                    \
    }

static void expect(const struct fixture *f, const struct encoded *cases, size_t n_cases)
{
    for (size_t i = 0; i < n_cases; i++) {
        const struct encoded *c = &cases[i];
        struct token_ids ids = {0};
        size_t n_spans = 0, n = 0;

        while (n_spans < COUNT_OF(c->spans) && c->spans[n_spans].text != NULL)
            n_spans++;
        assert_int_equal(tokenizer_encode(f->tokenizer, c->spans, n_spans, 0, 100, &ids), ST_OK);
        while (c->ids[n] != -1 && n < ids.n && ids.ids[n] == c->ids[n])
            n++;
        if (c->ids[n] != -1 || n != ids.n)
            fail_msg("case %zu (\"%s\"): id %zu is %d, want %d; %zu ids", i, c->spans[0].text, n,
                     n < ids.n ? ids.ids[n] : -1, c->ids[n], ids.n);
        token_ids_dispose(&ids);
    }
}

static void takes_white_space_along(void **state)
{
    static const struct encoded cases[] = {
        {{CHAT("a<r> \n a")}, {SPACE_A, RIGHT, SPACE_A, -1}},
        {{CHAT("a <r>a")}, {SPACE_A, SPACE, RIGHT, SPACE_A, -1}},
        {{CHAT("a \n<l> a")}, {SPACE_A, LEFT, SPACE, SPACE_A, -1}},
        {{CHAT("a <b> a")}, {SPACE_A, BOTH, SPACE_A, -1}},
        {{CHAT("<s> a")}, {BOS, SPACE, SPACE_A, -1}},
        {{CHAT("b </s> a")}, {SPACE, B, SPACE, EOS, SPACE_A, -1}},
    };
    struct fixture f;

    (void)state;
    open_with_strips(&f);
    expect(&f, cases, COUNT_OF(cases));
    close_fixture(&f);
}

/* Where two tokens could take the same white space the first does, and the ends of a text are no
 * more than ends. */
static void shares_white_space_among_tokens(void **state)
{
    static const struct encoded cases[] = {
        {{CHAT("<b> <b> <l>b")}, {BOTH, BOTH, LEFT, SPACE, B, -1}},
        {{CHAT("<r>  <l>")}, {RIGHT, LEFT, -1}},
        {{CHAT("<r> \n ")}, {RIGHT, -1}},
        {{CHAT(" \n<l>")}, {LEFT, -1}},
        {{CHAT("<r>\n <r>\n")}, {RIGHT, RIGHT, -1}},
    };
    struct fixture f;

    (void)state;
    open_with_strips(&f);
    expect(&f, cases, COUNT_OF(cases));
    close_fixture(&f);
}

/* U+200B and U+001C are none, whatever other languages think. */
static void knows_white_space_as_unicode_does(void **state)
{
    static const struct encoded cases[] = {
        {{CHAT("a\u00A0\u2028\u3000<l>b")}, {SPACE_A, LEFT, SPACE, B, -1}},
        {{CHAT("a\xC2\x85<b>\u1680\u202F\u205F\u2009b")}, {SPACE_A, BOTH, SPACE, B, -1}},
        {{CHAT("a\u200B<l>b")}, {SPACE_A, UNK, LEFT, SPACE, B, -1}},
        {{CHAT("a\x1C<l>b")}, {SPACE_A, UNK, LEFT, SPACE, B, -1}},
    };
    struct fixture f;

    (void)state;
    open_with_strips(&f);
    expect(&f, cases, COUNT_OF(cases));
    close_fixture(&f);
}

/* Only the token itself must be a template's. */
static void takes_white_space_from_other_spans(void **state)
{
    static const struct encoded cases[] = {
        {{CHAT("<r>"), TEXT(" \na <r>")}, {RIGHT, SPACE_A, SPACE, UNK, -1}},
        {{TEXT("a \n"), CHAT("<l>"), TEXT(" a")}, {SPACE_A, LEFT, SPACE, SPACE_A, -1}},
        {{CHAT("<r>\n"), TEXT("\n"), CHAT("\n"), TEXT(" a")}, {RIGHT, SPACE_A, -1}},
        {{CHAT("<r>"), TEXT(" \n"), CHAT("<r>\n")}, {RIGHT, RIGHT, -1}},
        {{CHAT("<b>"), TEXT(" "), CHAT("<b>")}, {BOTH, BOTH, -1}},
    };
    struct fixture f;

    (void)state;
    open_with_strips(&f);
    expect(&f, cases, COUNT_OF(cases));
    close_fixture(&f);
}

static void leaves_the_white_space_of_user_text_alone(void **state)
{
    static const struct encoded cases[] = {
        {{TEXT("a \n<l> a"), CHAT("<r>")}, {SPACE_A, SPACE, LINE, UNK, SPACE_A, RIGHT, -1}},
        {{TEXT("a <think> \na")}, {SPACE_A, THINK, SPACE_A, -1}}, /* not special: it counts */
    };
    struct fixture f;

    (void)state;
    open_with_strips(&f);
    expect(&f, cases, COUNT_OF(cases));
    close_fixture(&f);
}

static void decodes_tokens_as_they_are(void **state)
{
    static const int32_t ids[] = {SPACE_A, THINK, SPACE_A};
    struct detok *d = NULL;
    struct fixture f;
    struct buf out;

    (void)state;
    buf_init(&out);
    open_with_strips(&f);
    assert_int_equal(detok_new(f.tokenizer, NULL, 0, &d), ST_OK);
    for (size_t i = 0; i < COUNT_OF(ids); i++)
        assert_false(detok_feed(d, ids[i], &out));
    detok_flush(d, &out);
    assert_string_equal(buf_cstr(&out), "a<think> a");
    buf_dispose(&out);
    detok_free(d);
    close_fixture(&f);
}

/* Their files have no key for it. A folder's translation does, and goes before what is known. */
static void knows_phi3_by_its_architecture(void **state)
{
    static const char *const phi3[N_TOKENS] = {
        "<unk>", "<s>", "</s>",    SP,        "a",        SP "a",
        "b",     "\n",  "<|end|>", "<|new|>", "<|user|>", "<|endoftext|>",
    };
    static const struct encoded marked[] = {
        {{CHAT("<|user|>\na<|end|>\n<s> a")}, {BOTH, SPACE_A, RIGHT, BOS, SPACE, SPACE_A, -1}},
        {{CHAT("<|endoftext|> a<|new|> a")}, {THINK, SPACE, SPACE_A, LEFT, SPACE, SPACE_A, -1}},
        {{CHAT("</s> a")}, {EOS, SPACE_A, -1}},
    };
    static const struct encoded plain[] = {
        {{CHAT("<|user|> a")}, {BOTH, SPACE, SPACE_A, -1}},
    };
    static const struct {
        const char *arch;
        bool is_folder, is_marked;
    } cases[] = {{"phi3", false, true}, {"phi3", true, false}, {"llama", false, false}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct fixture f;

        begin(&f, phi3);
        gguf_build_string(&f.build, "general.architecture", cases[i].arch);
        if (cases[i].is_folder)
            gguf_build_i32s(&f.build, "sluice.token_rstrip", NULL, 0);
        open_tokenizer(&f);
        expect(&f, cases[i].is_marked ? marked : plain,
               cases[i].is_marked ? COUNT_OF(marked) : COUNT_OF(plain));
        close_fixture(&f);
    }
}

static void refuses_lists_of_what_is_no_token(void **state)
{
    static const char *const keys[] = {"sluice.token_lstrip", "sluice.token_rstrip"};
    static const int32_t wrong[] = {-1, N_TOKENS};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(keys) * COUNT_OF(wrong); i++) {
        const int32_t ids[] = {LEFT, wrong[i / 2]};
        struct reason why = {0};
        struct fixture f;

        begin(&f, texts);
        gguf_build_i32s(&f.build, keys[i % 2], ids, COUNT_OF(ids));
        assert_int_equal(try_open(&f, &why), ST_CORRUPT);
        assert_non_null(strstr(why.text, "entry 1 of sluice.token_"));
        close_fixture(&f);
    }
}

static void refuses_a_list_that_is_none(void **state)
{
    struct reason why = {0};
    struct fixture f;

    (void)state;
    begin(&f, texts);
    gguf_build_u32(&f.build, "sluice.token_rstrip", 1);
    assert_int_equal(try_open(&f, &why), ST_CORRUPT);
    assert_non_null(strstr(why.text, "is not a list"));
    close_fixture(&f);
}

/* Each character is looked at once for either side: a quadratic step would take hours. */
static void takes_long_white_space_in_stride(void **state)
{
    const size_t len = 900000;
    char *text = malloc(len);
    struct token_ids ids = {0};
    struct fixture f;

    (void)state;
    assert_non_null(text);
    open_with_strips(&f);
    memset(text, ' ', len);
    for (size_t at = 0; at + 3 <= len; at += len / 3)
        memcpy(text + at, "<b>", 3);
    assert_int_equal(
        tokenizer_encode(f.tokenizer, &(struct text_span){text, len, true}, 1, 0, 100, &ids),
        ST_OK);
    assert_int_equal(ids.n, 3);
    token_ids_dispose(&ids);
    free(text);
    close_fixture(&f);
}

/* A token of white space finds that of its like before it, which is taken already. */
static void tokens_of_white_space_take_it_once(void **state)
{
    const size_t len = 900000;
    char *text = malloc(len);
    const char *tokens[N_TOKENS];
    struct token_ids ids = {0};
    struct fixture f;

    (void)state;
    assert_non_null(text);
    memcpy(tokens, texts, sizeof tokens);
    tokens[LEFT] = " ";
    begin(&f, tokens);
    gguf_build_i32s(&f.build, "sluice.token_lstrip", left, COUNT_OF(left));
    open_tokenizer(&f);
    memset(text, ' ', len);
    assert_int_equal(
        tokenizer_encode(f.tokenizer, &(struct text_span){text, len, true}, 1, 0, len, &ids),
        ST_OK);
    assert_int_equal(ids.n, len);
    token_ids_dispose(&ids);
    free(text);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_white_space_along),
        cmocka_unit_test(shares_white_space_among_tokens),
        cmocka_unit_test(knows_white_space_as_unicode_does),
        cmocka_unit_test(takes_white_space_from_other_spans),
        cmocka_unit_test(leaves_the_white_space_of_user_text_alone),
        cmocka_unit_test(decodes_tokens_as_they_are),
        cmocka_unit_test(knows_phi3_by_its_architecture),
        cmocka_unit_test(refuses_lists_of_what_is_no_token),
        cmocka_unit_test(refuses_a_list_that_is_none),
        cmocka_unit_test(takes_long_white_space_in_stride),
        cmocka_unit_test(tokens_of_white_space_take_it_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
