#include "engine/text/vocab.h"

#include <math.h>
#include <stdio.h>
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
static const char scores_key[] = "tokenizer.ggml.scores";

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

bool vocab_is_added(const struct vocab *v, int32_t id)
{
    return vocab_is_control(v, id) || v->tokens[id].type == TOKEN_USER_DEFINED;
}

/* Byte-level vocabularies are plain but for their control tokens. Elsewhere the text of a byte or
 * of an unused token is not what it stands for. */
int32_t vocab_find_plain(const struct vocab *v, const char *text, size_t len)
{
    int32_t id = vocab_find(v, text, len);

    if (id == -1 || vocab_is_control(v, id))
        return -1;
    if (v->spelling == VOCAB_SPACES &&
        (v->tokens[id].type == TOKEN_BYTE || v->tokens[id].type == TOKEN_UNUSED))
        return -1;
    return id;
}

int32_t vocab_find_byte(const struct vocab *v, unsigned char byte)
{
    const char c = (char)byte;
    char spelled[8];
    int32_t id;

    if (v->spelling == VOCAB_BYTE_ALPHABET)
        return vocab_find_plain(v, spelled, byte_alphabet_encode_text(&c, 1, spelled));
    snprintf(spelled, sizeof spelled, "<0x%02X>", byte);
    id = vocab_find(v, spelled, 6);
    return id != -1 && v->tokens[id].type == TOKEN_BYTE ? id : -1;
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
    v->text_max = 1;
    v->words_begin_with_space = true;
    return v->tokens != NULL && v->slots != NULL;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x0A>", nothing else. */
static bool decode_byte(const char *text, size_t len, char *piece, size_t *piece_len)
{
    int high, low;

    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return false;
    high = hex_digit(text[3]);
    low = hex_digit(text[4]);
    if (high == -1 || low == -1)
        return false;
    piece[0] = (char)(high << 4 | low);
    *piece_len = 1;
    return true;
}

static bool is_space(const char *s, size_t len)
{
    return len >= VOCAB_SPACE_BYTES && memcmp(s, VOCAB_SPACE, VOCAB_SPACE_BYTES) == 0;
}

static size_t decode_spaces(const char *text, size_t len, char *piece)
{
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        bool space = is_space(text + i, len - i);

        piece[n++] = space ? ' ' : text[i];
        i += space ? VOCAB_SPACE_BYTES : 1;
    }
    return n;
}

/* Control tokens are text. A spelling with characters outside the byte alphabet (some files list
 * added tokens as normal ones) stands for itself. */
static bool decode_piece(const struct vocab *v, const struct vocab_token *t, char *piece,
                         size_t *len)
{
    if (t->type == TOKEN_CONTROL || t->type == TOKEN_UNKNOWN || t->type == TOKEN_UNUSED)
        return false;
    if (v->spelling == VOCAB_BYTE_ALPHABET)
        return t->type != TOKEN_USER_DEFINED &&
               byte_alphabet_decode_text(t->text, t->text_len, piece, len);
    if (t->type == TOKEN_BYTE)
        return decode_byte(t->text, t->text_len, piece, len);
    *len = decode_spaces(t->text, t->text_len, piece);
    return true;
}

static bool space_is_inside(const struct vocab_token *t)
{
    bool others = false;

    for (size_t i = 0; i < t->text_len;) {
        bool space = is_space(t->text + i, t->text_len - i);

        if (space && others)
            return true;
        others = !space;
        i += space ? VOCAB_SPACE_BYTES : 1;
    }
    return false;
}

static bool set_piece(struct vocab *v, struct vocab_token *t)
{
    char *piece = arena_alloc(&v->arena, t->text_len + (size_t)1);
    size_t len;

    if (piece == NULL)
        return false;
    t->piece = t->text;
    t->piece_len = t->text_len;
    if (decode_piece(v, t, piece, &len)) {
        t->piece = piece;
        t->piece_len = (uint32_t)len;
    }
    if (t->piece_len > v->piece_max)
        v->piece_max = t->piece_len;
    if (t->text_len > v->text_max)
        v->text_max = t->text_len;
    if (t->type == TOKEN_NORMAL && space_is_inside(t))
        v->words_begin_with_space = false;
    return true;
}

static enum status check_token(const struct vocab *v, const struct gguf_string *s, int32_t type,
                               struct reason *why)
{
    const size_t id = v->n;
    size_t len;
    char byte;

    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return fail_param(why, ST_CORRUPT, types_key, "token %zu has the unknown type %d", id,
                          type);
    if (s->len > TOKEN_BYTES_MAX)
        return fail_param(why, ST_TOO_LARGE, tokens_key, "token %zu has %zu bytes; at most %d", id,
                          s->len, TOKEN_BYTES_MAX);
    if (!utf8_is_valid(s->data, s->len) || memchr(s->data, 0, s->len) != NULL)
        return fail_param(why, ST_CORRUPT, tokens_key, "token %zu is not plain UTF-8", id);
    if (v->spelling == VOCAB_SPACES && type == TOKEN_BYTE &&
        !decode_byte(s->data, s->len, &byte, &len))
        return fail_param(why, ST_CORRUPT, tokens_key,
                          "token %zu is a byte and not spelled as one (<0x00> to <0xFF>)", id);
    return ST_OK;
}

static enum status add_token(struct vocab *v, const struct gguf_string *s, int32_t type,
                             struct reason *why)
{
    struct vocab_token *t = &v->tokens[v->n];
    enum status status = check_token(v, s, type, why);
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

static enum status read_scores(struct vocab *v, const struct gguf *g, struct reason *why)
{
    enum gguf_type type = GGUF_ARRAY;
    size_t n = 0;

    if (!gguf_has(g, scores_key))
        return ST_OK;
    if (!gguf_array(g, scores_key, &type, &n) || type != GGUF_F32 || n != v->n)
        return fail_param(why, ST_CORRUPT, scores_key, "%s is not a list of %u floats", scores_key,
                          v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        (void)gguf_array_f32(g, scores_key, i, &v->tokens[i].score);
        if (!isfinite(v->tokens[i].score))
            return fail_param(why, ST_CORRUPT, scores_key, "the score of token %u is not a number",
                              i);
    }
    v->has_scores = true;
    return ST_OK;
}

enum status vocab_init(struct vocab *v, const struct gguf *g, enum vocab_spelling spelling,
                       struct reason *why)
{
    enum status s;
    enum gguf_type type = GGUF_ARRAY;
    size_t n = 0, n_types = 0;

    *v = (struct vocab){.spelling = spelling};
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
    s = add_tokens(v, g, n, why);
    return s == ST_OK ? read_scores(v, g, why) : s;
}

void vocab_dispose(struct vocab *v)
{
    arena_dispose(&v->arena);
}
