/* Tokenizers of small vocabularies, for the tests of their kinds: a vocabulary becomes a file in
 * memory, the file a tokenizer. Brings cmocka along. One thread. */
#ifndef TESTS_UNIT_ENGINE_TEXT_SMALL_TOKENIZER_H
#define TESTS_UNIT_ENGINE_TEXT_SMALL_TOKENIZER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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

static inline void add(struct vocabulary *v, const char *text, int32_t type, float score)
{
    assert_true(v->n < TOKENS_MAX);
    v->tokens[v->n++] = (struct token){text, type, score};
}

static inline void put_floats(struct gguf_build *b, const char *key, const float *x, size_t n)
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

static inline void put_bytes(struct gguf_build *b, const char *key, const void *data, size_t n)
{
    gguf_build_key(b, key, GGUF_ARRAY);
    buf_put_u32(&b->kv, GGUF_U8);
    buf_put_u64(&b->kv, n);
    buf_append(&b->kv, data, n);
}

static inline void put_vocabulary(struct gguf_build *b, const struct vocabulary *v)
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

static inline enum status try_open(struct fixture *f, struct reason *why)
{
    buf_clear(&f->file);
    gguf_build_finish(&f->build, &f->file);
    assert_int_equal(gguf_open_memory(f->file.data, f->file.len, &f->gguf, NULL), ST_OK);
    return tokenizer_new(f->gguf, &f->tokenizer, why);
}

static inline void begin(struct fixture *f, const struct vocabulary *v)
{
    *f = (struct fixture){0};
    gguf_build_init(&f->build);
    put_vocabulary(&f->build, v);
}

static inline void open_tokenizer(struct fixture *f)
{
    struct reason why = {0};

    if (try_open(f, &why) != ST_OK)
        fail_msg("%s", why.text);
}

static inline void close_fixture(struct fixture *f)
{
    tokenizer_free(f->tokenizer);
    gguf_close(f->gguf);
    buf_dispose(&f->file);
    gguf_build_dispose(&f->build);
}

static inline void expect_reason(struct fixture *f, const char *part)
{
    struct reason why = {0};
    enum status s = try_open(f, &why);

    if (s == ST_OK || strstr(why.text, part) == NULL)
        fail_msg("got %s \"%s\", want \"%s\"", status_name(s), why.text, part);
    close_fixture(f);
}

static inline void expect_ids(const struct fixture *f, const char *text, unsigned how,
                              const int32_t *want, size_t n)
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

static inline void expect_text(const struct fixture *f, const int32_t *ids, size_t n,
                               const char *want)
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

static inline void expect_round_trip(const struct fixture *f, const char *text)
{
    const struct text_span span = {text, strlen(text), false};
    struct token_ids ids = {0};

    assert_int_equal(tokenizer_encode(f->tokenizer, &span, 1, 0, 1000, &ids), ST_OK);
    expect_text(f, ids.ids, ids.n, text);
    token_ids_dispose(&ids);
}

#endif
