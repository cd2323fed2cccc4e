/* The kinds of tokenizers beside byte-level BPE, on small vocabularies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/text/detok.h"
#include "engine/text/tokenizer.h"
#include "tests/lib/gguf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define SP "\xE2\x96\x81" /* U+2581 */

enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER = 4, UNUSED = 5, BYTE = 6 };

struct token {
    const char *text;
    int32_t type;
    float score;
};

#define TOKENS_MAX 320

struct vocabulary {
    const char *kind;
    struct token tokens[TOKENS_MAX];
    size_t n;
    bool no_scores;
};

static void add(struct vocabulary *v, const char *text, int32_t type, float score)
{
    assert_true(v->n < TOKENS_MAX);
    v->tokens[v->n++] = (struct token){text, type, score};
}

static void put_floats(struct gguf_build *b, const char *key, const float *x, size_t n)
{
    gguf_build_key(b, key, GGUF_ARRAY);
    buf_put_u32(&b->kv, GGUF_F32);
    buf_put_u64(&b->kv, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof bits);
        buf_put_u32(&b->kv, bits);
    }
}

static void put_bytes(struct gguf_build *b, const char *key, const void *data, size_t n)
{
    gguf_build_key(b, key, GGUF_ARRAY);
    buf_put_u32(&b->kv, GGUF_U8);
    buf_put_u64(&b->kv, n);
    buf_append(&b->kv, data, n);
}

static void put_vocabulary(struct gguf_build *b, const struct vocabulary *v)
{
    const char *texts[TOKENS_MAX];
    int32_t types[TOKENS_MAX];
    float scores[TOKENS_MAX];

    for (size_t i = 0; i < v->n; i++) {
        texts[i] = v->tokens[i].text;
        types[i] = v->tokens[i].type;
        scores[i] = v->tokens[i].score;
    }
    gguf_build_string(b, "tokenizer.ggml.model", v->kind);
    gguf_build_strings(b, "tokenizer.ggml.tokens", texts, v->n);
    gguf_build_i32s(b, "tokenizer.ggml.token_type", types, v->n);
    if (!v->no_scores)
        put_floats(b, "tokenizer.ggml.scores", scores, v->n);
}

struct fixture {
    struct gguf_build build;
    struct buf file;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

static enum status try_open(struct fixture *f, struct reason *why)
{
    buf_clear(&f->file);
    gguf_build_finish(&f->build, &f->file);
    assert_int_equal(gguf_open_memory(f->file.data, f->file.len, &f->gguf, NULL), ST_OK);
    return tokenizer_new(f->gguf, &f->tokenizer, why);
}

static void begin(struct fixture *f, const struct vocabulary *v)
{
    *f = (struct fixture){0};
    gguf_build_init(&f->build);
    put_vocabulary(&f->build, v);
}

static void open_tokenizer(struct fixture *f)
{
    struct reason why = {0};

    if (try_open(f, &why) != ST_OK)
        fail_msg("%s", why.text);
}

static void close_fixture(struct fixture *f)
{
    tokenizer_free(f->tokenizer);
    gguf_close(f->gguf);
    buf_dispose(&f->file);
    gguf_build_dispose(&f->build);
}

static void expect_reason(struct fixture *f, const char *part)
{
    struct reason why = {0};
    enum status s = try_open(f, &why);

    if (s == ST_OK || strstr(why.text, part) == NULL)
        fail_msg("got %s \"%s\", want \"%s\"", status_name(s), why.text, part);
    close_fixture(f);
}

static void expect_ids(const struct fixture *f, const char *text, unsigned how, const int32_t *want,
                       size_t n)
{
    const struct text_span span = {text, strlen(text), (how & 8) != 0};
    struct token_ids ids = {0};

    assert_int_equal(tokenizer_encode(f->tokenizer, &span, 1, how & 3, 1000, &ids), ST_OK);
    for (size_t i = 0; i < ids.n && i < n; i++)
        if (ids.ids[i] != want[i])
            fail_msg("\"%s\": id %zu is %d, want %d", text, i, ids.ids[i], want[i]);
    assert_int_equal(ids.n, n);
    token_ids_dispose(&ids);
}

enum { PARSE = 8 };

#define EXPECT(f, text, how, ...)                                                                  \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        expect_ids(f, text, how, want_, COUNT_OF(want_));                                          \
    } while (0)

static void expect_text(const struct fixture *f, const int32_t *ids, size_t n, const char *want)
{
    struct detok *d = NULL;
    struct buf out;

    buf_init(&out);
    assert_int_equal(detok_new(f->tokenizer, NULL, 0, &d), ST_OK);
    for (size_t i = 0; i < n; i++)
        assert_false(detok_feed(d, ids[i], &out));
    detok_flush(d, &out);
    assert_string_equal(buf_cstr(&out), want);
    buf_dispose(&out);
    detok_free(d);
}

static void expect_round_trip(const struct fixture *f, const char *text)
{
    const struct text_span span = {text, strlen(text), false};
    struct token_ids ids = {0};

    assert_int_equal(tokenizer_encode(f->tokenizer, &span, 1, 0, 1000, &ids), ST_OK);
    expect_text(f, ids.ids, ids.n, text);
    token_ids_dispose(&ids);
}

/* ---- SentencePiece BPE ---- */

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

/* ---- Unigram ---- */

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

/* ---- WordPiece ---- */

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

/* ---- all of them ---- */

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
        cmocka_unit_test(unigram_takes_the_likeliest_way),
        cmocka_unit_test(unigram_merges_spaces),
        cmocka_unit_test(unigram_normalizes_by_the_file),
        cmocka_unit_test(refuses_broken_charsmaps),
        cmocka_unit_test(bears_a_charsmap_that_runs_in_a_circle),
        cmocka_unit_test(refuses_a_charsmap_without_an_end),
        cmocka_unit_test(unigram_takes_long_text_in_stride),
        cmocka_unit_test(wordpiece_takes_the_longest_first),
        cmocka_unit_test(wordpiece_drops_case_and_accents_and_cuts_at_punctuation),
        cmocka_unit_test(wordpiece_keeps_case_where_asked),
        cmocka_unit_test(wordpiece_gives_up_on_long_words),
        cmocka_unit_test(knows_the_ids_that_end_a_generation),
        cmocka_unit_test(takes_end_for_the_end_unless_messages_end_with_it),
        cmocka_unit_test(refuses_a_kind_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
