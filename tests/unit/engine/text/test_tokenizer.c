#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/text/tokenizer.h"
#include "tests/lib/gguf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

struct fixture {
    struct buf file;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

static enum status open_built(struct fixture *f, const struct gguf_build *b, struct reason *why)
{
    *f = (struct fixture){0};
    gguf_build_finish(b, &f->file);
    assert_int_equal(gguf_open_memory(f->file.data, f->file.len, &f->gguf, NULL), ST_OK);
    return tokenizer_new(f->gguf, &f->tokenizer, why);
}

static void close_fixture(struct fixture *f)
{
    tokenizer_free(f->tokenizer);
    gguf_close(f->gguf);
    buf_dispose(&f->file);
}

static void open_tiny(struct fixture *f, const struct tiny_model_options *o)
{
    struct gguf_build b;

    gguf_build_init(&b);
    tiny_model_vocabulary(&b, o);
    assert_int_equal(open_built(f, &b, NULL), ST_OK);
    gguf_build_dispose(&b);
}

static int set_up(void **state)
{
    struct tiny_model_options o = {.add_bos = true};
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    open_tiny(f, &o);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    close_fixture(*state);
    free(*state);
    return 0;
}

static struct text_span span(const char *text, bool control)
{
    return (struct text_span){text, strlen(text), control};
}

static void expect_ids(const struct tokenizer *t, const struct text_span *spans, size_t n_spans,
                       bool add_bos, const int32_t *want, size_t n)
{
    struct token_ids ids = {0};

    assert_int_equal(tokenizer_encode(t, spans, n_spans, add_bos, 1000, &ids), ST_OK);
    assert_int_equal(ids.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids.ids[i], want[i]);
    token_ids_dispose(&ids);
}

#define EXPECT(t, spans, n_spans, add_bos, ...)                                                    \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        expect_ids(t, spans, n_spans, add_bos, want_, COUNT_OF(want_));                            \
    } while (0)

#define BYTE(c) (TINY_BYTE0 + (unsigned char)(c))
#define HELLO   (TINY_MERGE0 + 3)
#define WORLD   (TINY_MERGE0 + 8) /* with its space */

static void merges_by_rank(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    struct text_span s = span("hello world", false);

    EXPECT(t, &s, 1, false, HELLO, WORLD);
    s = span("hellx \xC3\xA9", false);
    EXPECT(t, &s, 1, false, TINY_MERGE0 + 2, BYTE('x'), BYTE(' '), BYTE(0xC3), BYTE(0xA9));
}

static void adds_bos_where_asked(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    struct text_span s = span("hello", false);

    EXPECT(t, &s, 1, true, TINY_IM_START, HELLO);
    EXPECT(t, NULL, 0, true, TINY_IM_START);
    assert_int_equal(tokenizer_bos_id(t), TINY_IM_START);
    assert_string_equal(tokenizer_bos_text(t), "<|im_start|>");
    assert_string_equal(tokenizer_eos_text(t), "<|im_end|>");
}

static void parses_control_tokens_only_where_allowed(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    struct text_span s = span("hello<|im_end|>hello", true);
    struct token_ids ids = {0};

    EXPECT(t, &s, 1, false, HELLO, TINY_IM_END, HELLO);
    s.control = false;
    assert_int_equal(tokenizer_encode(t, &s, 1, false, 1000, &ids), ST_OK);
    for (size_t i = 0; i < ids.n; i++)
        assert_false(tokenizer_is_control(t, ids.ids[i]));
    token_ids_dispose(&ids);
}

/* A user who ends a message with "<|im" must not complete a token with the template's text, nor
 * the other way round. */
static void never_parses_a_control_token_across_spans(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    const char *text = "<|im_end|>";

    for (size_t cut = 1; cut < strlen(text); cut++) {
        for (int allowed = 0; allowed < 4; allowed++) {
            struct text_span spans[2] = {{text, cut, (allowed & 1) != 0},
                                         {text + cut, strlen(text) - cut, (allowed & 2) != 0}};
            struct token_ids ids = {0};

            assert_int_equal(tokenizer_encode(t, spans, 2, false, 1000, &ids), ST_OK);
            for (size_t i = 0; i < ids.n; i++)
                assert_false(tokenizer_is_control(t, ids.ids[i]));
            token_ids_dispose(&ids);
        }
    }
}

static void merges_across_spans(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    struct text_span spans[] = {span("he", true), span("", false), span("llo wor", false),
                                span("ld<|im_end|>", true)};

    EXPECT(t, spans, 4, false, HELLO, WORLD, TINY_IM_END);
}

static void finds_user_defined_tokens_everywhere(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    struct text_span spans[] = {span("hello<tool_", false), span("call>hello<tool_call>s", false)};

    EXPECT(t, spans, 2, false, HELLO, TINY_TOOL_CALL, HELLO, TINY_TOOL_CALLS);
}

static void keeps_the_limit_and_the_list(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    struct text_span s = span("hello world hello", false);
    struct token_ids ids = {0};

    assert_int_equal(tokenizer_encode(t, &s, 1, false, 4, &ids), ST_OK);
    assert_int_equal(ids.n, 4); /* the second "hello" has a space before it */
    assert_int_equal(tokenizer_encode(t, &s, 1, false, 7, &ids), ST_TOO_LARGE);
    assert_int_equal(ids.n, 4);
    s = span("\xC3", false);
    assert_int_equal(tokenizer_encode(t, &s, 1, false, 100, &ids), ST_INVALID);
    assert_int_equal(ids.n, 4);
    token_ids_dispose(&ids);
}

/* 10^6 letters in one pre-token; a quadratic merge would take hours. */
static void takes_long_words_in_stride(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    const size_t len = 1000000;
    struct token_ids ids = {0};
    struct text_span s = {.len = len};
    char *text = malloc(len);

    assert_non_null(text);
    memset(text, 's', len);
    s.text = text;
    assert_int_equal(tokenizer_encode(t, &s, 1, false, len, &ids), ST_OK);
    assert_int_equal(ids.n, len / 2);
    assert_int_equal(tokenizer_encode(t, &s, 1, false, 1000, &ids), ST_TOO_LARGE);
    token_ids_dispose(&ids);
    free(text);
}

static size_t piece_bytes(const struct tokenizer *t, const struct token_ids *ids)
{
    size_t total = 0, len;

    for (size_t i = 0; i < ids->n; i++) {
        (void)tokenizer_piece(t, ids->ids[i], &len);
        total += len;
    }
    return total;
}

/* Runs of one kind of character and something else at the end, which a careless pattern looks for
 * again from each of them. Nothing is lost on the way. */
static void no_pattern_takes_quadratic_time(void **state)
{
    static const char *const names[] = {"gpt-2",        "smollm",         "llama-bpe", "qwen2",
                                        "deepseek-llm", "deepseek-coder", "gpt-4o",    "tekken",
                                        "deepseek-v3",  "falcon",         "qwen35",    "bloom"};
    static const char *const units[] = {"A", " ", "1", "'", "\n", "A1", "\xE4\xB8\xAD", "\t\r"};
    const size_t len = 240000; /* of whole units */
    char *text = malloc(len + 2);

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const struct tiny_model_options o = {.pre = names[i]};
        struct fixture f;

        open_tiny(&f, &o);
        for (size_t k = 0; k < COUNT_OF(units); k++) {
            const struct text_span s = {text, len + 2, true};
            struct token_ids ids = {0};

            for (size_t at = 0; at < len; at += strlen(units[k]))
                memcpy(text + at, units[k], strlen(units[k]));
            memcpy(text + len, " x", 2);
            assert_int_equal(tokenizer_encode(f.tokenizer, &s, 1, 0, len + 2, &ids), ST_OK);
            assert_int_equal(piece_bytes(f.tokenizer, &ids), len + 2);
            token_ids_dispose(&ids);
        }
        close_fixture(&f);
    }
    free(text);
}

/* Qwen's texts are brought into normal form C; marks in any number and order take no more time. */
static void brings_text_into_normal_form(void **state)
{
    const struct tiny_model_options o = {.pre = "qwen2"};
    const size_t len = 400000;
    struct text_span s = span("e\xCC\x81 \xE2\x84\xAB s\xCC\x87\xCC\xA3", false);
    char *text = malloc(len);
    struct token_ids ids = {0};
    struct fixture f;

    (void)state;
    assert_non_null(text);
    open_tiny(&f, &o);
    EXPECT(f.tokenizer, &s, 1, false, BYTE(0xC3), BYTE(0xA9), BYTE(' '), BYTE(0xC3), BYTE(0x85),
           BYTE(' '), BYTE(0xE1), BYTE(0xB9), BYTE(0xA9));
    for (size_t at = 0; at < len; at += 4)
        memcpy(text + at, "\xCC\x82\xCC\xA3", 4);
    s = (struct text_span){text, len, false};
    assert_int_equal(tokenizer_encode(f.tokenizer, &s, 1, false, len, &ids), ST_OK);
    assert_int_equal(piece_bytes(f.tokenizer, &ids), len);
    assert_int_equal(ids.ids[1], BYTE(0xA3)); /* marks below come before marks above */
    assert_int_equal(ids.ids[len - 1], BYTE(0x82));
    token_ids_dispose(&ids);
    free(text);
    close_fixture(&f);
}

static void gives_bytes_of_tokens(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;
    size_t len;

    for (int byte = 0; byte < 256; byte++) {
        const char *piece = tokenizer_piece(t, TINY_BYTE0 + byte, &len);

        assert_int_equal(len, 1);
        assert_int_equal((unsigned char)piece[0], byte);
    }
    assert_memory_equal(tokenizer_piece(t, WORLD, &len), " world", 6);
    assert_memory_equal(tokenizer_piece(t, TINY_IM_END, &len), "<|im_end|>", 10);
    (void)tokenizer_piece(t, TINY_VOCAB, &len);
    assert_int_equal(len, 0);
    (void)tokenizer_piece(t, -1, &len);
    assert_int_equal(len, 0);
}

static void knows_what_ends_a_generation(void **state)
{
    const struct tokenizer *t = ((struct fixture *)*state)->tokenizer;

    assert_true(tokenizer_is_eog(t, TINY_IM_END));
    assert_true(tokenizer_is_eog(t, TINY_ENDOFTEXT)); /* by its text */
    assert_false(tokenizer_is_eog(t, TINY_IM_START));
    assert_false(tokenizer_is_eog(t, -1));
    assert_true(tokenizer_is_control(t, TINY_IM_START));
    assert_false(tokenizer_is_control(t, TINY_TOOL_CALL));
}

/* A vocabulary of three letters, one merge and one control token, and what a case changes. */
struct small {
    const char *kind, *pre;
    const char *tokens[6];
    int32_t types[6];
    const char *merges[3];
    uint32_t n_types; /* 0: one each */
    uint32_t eos;
    bool ints_for_tokens;
    const char *reason; /* NULL: it is right */
};

static size_t count(const char *const *s, size_t max)
{
    size_t n = 0;

    while (n < max && s[n] != NULL)
        n++;
    return n;
}

static void put_small(struct gguf_build *b, const struct small *c)
{
    size_t n = count(c->tokens, 6);

    gguf_build_string(b, "tokenizer.ggml.model", c->kind);
    gguf_build_string(b, "tokenizer.ggml.pre", c->pre);
    if (c->ints_for_tokens)
        gguf_build_i32s(b, "tokenizer.ggml.tokens", c->types, n);
    else
        gguf_build_strings(b, "tokenizer.ggml.tokens", c->tokens, n);
    gguf_build_i32s(b, "tokenizer.ggml.token_type", c->types, c->n_types != 0 ? c->n_types : n);
    gguf_build_strings(b, "tokenizer.ggml.merges", c->merges, count(c->merges, 3));
    gguf_build_u32(b, "tokenizer.ggml.eos_token_id", c->eos);
}

/* Files list them as added tokens like any other; a user who writes one gets its characters. */
static void takes_marks_of_turns_for_control_tokens(void **state)
{
    static const struct small file = {
        .kind = "gpt2",
        .pre = "gpt-2",
        .tokens = {"q", "<start_of_turn>", "<end_of_turn>", "<\uFF5CUser\uFF5C>", "<u>", "<end>"},
        .types = {1, 4, 4, 4, 4, 4},
        .eos = 5};
    const char *text = "q<start_of_turn>q<end_of_turn>q<\uFF5CUser\uFF5C>q<u>q<end>q";
    struct text_span whole = {text, strlen(text), true};
    struct gguf_build b;
    struct fixture f;

    (void)state;
    gguf_build_init(&b);
    put_small(&b, &file);
    assert_int_equal(open_built(&f, &b, NULL), ST_OK);
    gguf_build_dispose(&b);
    EXPECT(f.tokenizer, &whole, 1, false, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0);
    whole.control = false;
    EXPECT(f.tokenizer, &whole, 1, false, 0, 0, 0, 0, 4, 0, 0);
    assert_true(tokenizer_is_eog(f.tokenizer, 2));
    assert_false(tokenizer_is_eog(f.tokenizer, 1));
    close_fixture(&f);
}

/* The right one, but for its merges. */
#define SMALL                                                                                      \
    .kind = "gpt2", .pre = "gpt-2", .tokens = {"a", "b", "ab", "<x>"}, .types = {1, 1, 1, 3}

/* Some tokens, where they don't matter. */
#define SOME .tokens = {"a"}, .types = {1}

static void refuses_broken_vocabularies(void **state)
{
    const struct small cases[] = {
        {SMALL, .merges = {"a b"}},
        {SMALL, .merges = {"a c"}, .reason = "names a token"},
        {SMALL, .merges = {"b a"}, .reason = "names a token"},
        {SMALL, .merges = {"ab"}, .reason = "not a pair"},
        {SMALL, .merges = {"a b", "a b"}, .reason = "same pair"},
        {SMALL, .eos = 4, .reason = "eos_token_id"},
        {SMALL, .n_types = 3, .reason = "token_type"},
        {SMALL, .ints_for_tokens = true, .reason = "no list of tokens"},
        {.kind = "gpt2", .pre = "default", SOME, .reason = "\"default\""},
        {.kind = "gpt2", .pre = "qwen\033[2J", SOME, .reason = "\"qwen?[2J\""},
        {.kind = "gpt2", .pre = "gpt-2", .reason = "0 tokens"},
        {.kind = "gpt2", .pre = "gpt-2", .tokens = {"a"}, .types = {7}, .reason = "unknown type"},
        {.kind = "gpt2", .pre = "gpt-2", .tokens = {"a", "a"}, .types = {1, 1}, .reason = "same"},
        {.kind = "gpt2", .pre = "gpt-2", .tokens = {"\xFF"}, .types = {1}, .reason = "UTF-8"},
        {.kind = "gpt2", .pre = "gpt-2", .tokens = {""}, .types = {3}, .reason = "0 bytes"},
        /* user text must not merge into a control token */
        {.kind = "gpt2",
         .pre = "gpt-2",
         .tokens = {"a", "b", "ab"},
         .types = {1, 1, 3},
         .merges = {"a b"},
         .reason = "control token"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct reason why = {0};
        struct gguf_build b;
        struct fixture f;
        enum status s;

        gguf_build_init(&b);
        put_small(&b, &cases[i]);
        s = open_built(&f, &b, &why);
        if (cases[i].reason == NULL)
            assert_int_equal(s, ST_OK);
        else if (s == ST_OK || strstr(why.text, cases[i].reason) == NULL)
            fail_msg("case %zu: got %s \"%s\", want \"%s\"", i, status_name(s), why.text,
                     cases[i].reason);
        close_fixture(&f);
        gguf_build_dispose(&b);
    }
}

/* As Hugging Face's tokenizers: the unknown token would be a control token made from user text. */
static void leaves_out_bytes_that_the_vocabulary_lacks(void **state)
{
    const struct small c = {SMALL, .merges = {"a b"}};
    struct text_span s = span("a\x01\x02"
                              "bab",
                              false);
    struct gguf_build b;
    struct fixture f;

    (void)state;
    gguf_build_init(&b);
    put_small(&b, &c);
    assert_int_equal(open_built(&f, &b, NULL), ST_OK);
    EXPECT(f.tokenizer, &s, 1, false, 0, 1, 2);
    close_fixture(&f);
    gguf_build_dispose(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_by_rank),
        cmocka_unit_test(adds_bos_where_asked),
        cmocka_unit_test(parses_control_tokens_only_where_allowed),
        cmocka_unit_test(never_parses_a_control_token_across_spans),
        cmocka_unit_test(merges_across_spans),
        cmocka_unit_test(finds_user_defined_tokens_everywhere),
        cmocka_unit_test(keeps_the_limit_and_the_list),
        cmocka_unit_test(takes_long_words_in_stride),
        cmocka_unit_test(no_pattern_takes_quadratic_time),
        cmocka_unit_test(brings_text_into_normal_form),
        cmocka_unit_test(gives_bytes_of_tokens),
        cmocka_unit_test(knows_what_ends_a_generation),
        cmocka_unit_test(takes_marks_of_turns_for_control_tokens),
        cmocka_unit_test(refuses_broken_vocabularies),
        cmocka_unit_test(leaves_out_bytes_that_the_vocabulary_lacks),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
