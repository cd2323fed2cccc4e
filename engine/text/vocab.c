#include "engine/text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/utf8.h"
#include "engine/text/byte_alphabet.h"

/* The largest vocabularies have about 260,000 tokens of at most a few hundred bytes. */
#define TOKENS_MAX      ((size_t)1 << 20)
#define TOKEN_BYTES_MAX 4096

static const char tokens_key[] = "tokenizer.ggml.tokens";
static const char types_key[] = "tokenizer.ggml.token_type";

static size_t find_slot(const struct vocab *v, const char *text, size_t len)
{
    size_t i = (size_t)XXH3_64bits(text, len) & v->mask;

    while (v->slots[i] != 0) {
        const struct vocab_token *t = &v->tokens[v->slots[i] - 1];

        if (t->text_len == len && memcmp(t->text, text, len) == 0)
            break;
        i = (i + 1) & v->mask;
    }
    return i;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t len)
{
    return v->slots[find_slot(v, text, len)] - 1;
}

bool vocab_is_control(const struct vocab *v, int32_t id)
{
    enum token_type type = v->tokens[id].type;

    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

static bool make_tables(struct vocab *v, size_t n)
{
    size_t slots = 8;

    while (slots < 2 * n)
        slots *= 2;
    v->tokens = arena_array(&v->arena, n, sizeof *v->tokens);
    v->slots = arena_array(&v->arena, slots, sizeof *v->slots);
    v->mask = slots - 1;
    v->piece_max = 1;
    return v->tokens != NULL && v->slots != NULL;
}

/* Control and user-defined tokens are text; the others spell bytes. A spelling with characters
 * outside the alphabet (some files list added tokens as normal ones) stands for itself. */
static bool set_piece(struct vocab *v, struct vocab_token *t)
{
    size_t len = t->text_len;
    char *piece;

    t->piece = t->text;
    t->piece_len = t->text_len;
    if (t->type == TOKEN_NORMAL || t->type == TOKEN_BYTE) {
        piece = arena_alloc(&v->arena, len + 1);
        if (piece == NULL)
            return false;
        if (byte_alphabet_decode_text(t->text, len, piece, &len)) {
            t->piece = piece;
            t->piece_len = (uint32_t)len;
        }
    }
    if (t->piece_len > v->piece_max)
        v->piece_max = t->piece_len;
    return true;
}

static enum status check_token(const struct gguf_string *s, size_t id, int32_t type,
                               struct reason *why)
{
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return fail_param(why, ST_CORRUPT, types_key, "token %zu has the unknown type %d", id,
                          type);
    if (s->len > TOKEN_BYTES_MAX)
        return fail_param(why, ST_TOO_LARGE, tokens_key, "token %zu has %zu bytes; at most %d", id,
                          s->len, TOKEN_BYTES_MAX);
    if (!utf8_is_valid(s->data, s->len) || memchr(s->data, 0, s->len) != NULL)
        return fail_param(why, ST_CORRUPT, tokens_key, "token %zu is not plain UTF-8", id);
    return ST_OK;
}

static enum status add_token(struct vocab *v, const struct gguf_string *s, int32_t type,
                             struct reason *why)
{
    struct vocab_token *t = &v->tokens[v->n];
    enum status status = check_token(s, v->n, type, why);
    size_t slot;

    if (status != ST_OK)
        return status;
    t->text = arena_strndup(&v->arena, s->data, s->len);
    t->text_len = (uint32_t)s->len;
    t->type = (enum token_type)type;
    if (t->text == NULL || !set_piece(v, t))
        return fail(why, ST_NO_MEMORY, "out of memory for the vocabulary");
    slot = find_slot(v, t->text, t->text_len);
    if (v->slots[slot] != 0)
        return fail_param(why, ST_CORRUPT, tokens_key, "tokens %d and %u are the same text",
                          v->slots[slot] - 1, v->n);
    v->slots[slot] = (int32_t)++v->n;
    return ST_OK;
}

static enum status add_tokens(struct vocab *v, const struct gguf *g, size_t n, struct reason *why)
{
    struct gguf_string *texts = calloc(n, sizeof *texts);
    enum status s = ST_OK;

    if (texts == NULL || !make_tables(v, n)) {
        free(texts);
        return fail(why, ST_NO_MEMORY, "out of memory for the vocabulary");
    }
    (void)gguf_array_strings(g, tokens_key, texts, n); /* vocab_init saw that they are there */
    for (size_t i = 0; i < n && s == ST_OK; i++) {
        int32_t type = 0;

        (void)gguf_array_i32(g, types_key, i, &type); /* else 0, which is refused */
        s = add_token(v, &texts[i], type, why);
    }
    free(texts);
    return s;
}

enum status vocab_init(struct vocab *v, const struct gguf *g, struct reason *why)
{
    enum gguf_type type = GGUF_ARRAY;
    size_t n = 0, n_types = 0;

    *v = (struct vocab){0};
    arena_init(&v->arena, 0);
    if (!gguf_array(g, tokens_key, &type, &n) || type != GGUF_STRING)
        return fail_param(why, ST_CORRUPT, tokens_key, "the file has no list of tokens (%s)",
                          tokens_key);
    if (n == 0 || n > TOKENS_MAX)
        return fail_param(why, ST_TOO_LARGE, tokens_key, "%zu tokens, not 1 to %zu", n, TOKENS_MAX);
    /* Without types nobody could tell a control token from text. */
    if (!gguf_array(g, types_key, &type, &n_types) || n_types != n)
        return fail_param(why, ST_CORRUPT, types_key, "%s is not a list of %zu numbers", types_key,
                          n);
    return add_tokens(v, g, n, why);
}

void vocab_dispose(struct vocab *v)
{
    arena_dispose(&v->arena);
}
