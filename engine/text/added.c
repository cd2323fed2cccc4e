#include "engine/text/added.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/size.h"
#include "base/utf8.h"

/* Real added tokens have some dozens of bytes. The bound keeps matching at one position short. */
#define ADDED_BYTES_MAX 256

struct added_node {
    int32_t child, sibling; /* -1: none */
    int32_t id;             /* token that ends here; -1: none */
    unsigned char byte;
};

/* What a match takes with it. */
enum strip {
    STRIP_LEFT = 1, /* white space before the token */
    STRIP_RIGHT = 2,
};

static const char left_key[] = "sluice.token_lstrip";
static const char right_key[] = "sluice.token_rstrip";

/* GGUF has no key for these flags. Phi-3's tokenizer with SentencePiece's vocabulary is known by
 * its architecture, and the reference takes white space behind these tokens (not behind <s> and
 * <|endoftext|>): without it the line break behind <|user|> would become tokens that the model
 * never saw there. */
static const char phi3_arch[] = "phi3", phi3_model[] = "llama";
static const char *const phi3_right[] = {
    "</s>",
    "<|assistant|>",
    "<|system|>",
    "<|user|>",
    "<|end|>",
    "<|placeholder1|>",
    "<|placeholder2|>",
    "<|placeholder3|>",
    "<|placeholder4|>",
    "<|placeholder5|>",
    "<|placeholder6|>",
};

/* Nodes that the tokens need at most. */
static enum status count_nodes(const struct vocab *v, size_t *out, struct reason *why)
{
    size_t n = 1;

    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];

        if (!vocab_is_added(v, (int32_t)i))
            continue;
        if (t->piece_len == 0 || t->piece_len > ADDED_BYTES_MAX)
            return fail(why, ST_CORRUPT, "added token %u has %u bytes, not 1 to %d", i,
                        t->piece_len, ADDED_BYTES_MAX);
        n += t->piece_len;
    }
    *out = n;
    return ST_OK;
}

static int32_t find_child(const struct added *a, int32_t node, unsigned char byte)
{
    int32_t i = node == 0 ? a->first[byte] : a->nodes[node].child;

    while (i != -1 && a->nodes[i].byte != byte)
        i = a->nodes[i].sibling;
    return i;
}

static int32_t add_child(struct added *a, int32_t node, unsigned char byte, int32_t i)
{
    int32_t *list = node == 0 ? &a->first[byte] : &a->nodes[node].child;

    a->nodes[i] = (struct added_node){.child = -1, .sibling = *list, .id = -1, .byte = byte};
    *list = i;
    return i;
}

static void insert(struct added *a, const struct vocab_token *t, int32_t id, int32_t *n)
{
    int32_t node = 0;

    for (uint32_t i = 0; i < t->piece_len; i++) {
        unsigned char byte = (unsigned char)t->piece[i];
        int32_t child = find_child(a, node, byte);

        node = child != -1 ? child : add_child(a, node, byte, (*n)++);
    }
    a->nodes[node].id = id;
}

static enum status read_strips(struct added *a, const struct gguf *g, const char *key,
                               enum strip strip, struct reason *why)
{
    enum gguf_type type;
    size_t n = 0;

    if (gguf_has(g, key) && !gguf_array(g, key, &type, &n))
        return fail_param(why, ST_CORRUPT, key, "%s is not a list of ids", key);
    for (size_t i = 0; i < n; i++) {
        int32_t id = -1;

        if (!gguf_array_i32(g, key, i, &id) || id < 0 || (uint32_t)id >= a->vocab->n)
            return fail_param(why, ST_CORRUPT, key,
                              "entry %zu of %s names no token of the vocabulary", i, key);
        a->strips[id] |= (unsigned char)strip;
    }
    return ST_OK;
}

static bool has_text(const struct gguf *g, const char *key, const char *want)
{
    struct gguf_string s;

    return gguf_get_string(g, key, &s) && s.len == strlen(want) && memcmp(s.data, want, s.len) == 0;
}

/* A file with our keys says it all: they are there, if empty, where it was a folder. */
static bool is_plain_phi3(const struct gguf *g)
{
    return has_text(g, "general.architecture", phi3_arch) &&
           has_text(g, "tokenizer.ggml.model", phi3_model) && !gguf_has(g, left_key) &&
           !gguf_has(g, right_key);
}

static void set_phi3_strips(struct added *a)
{
    for (size_t i = 0; i < COUNT_OF(phi3_right); i++) {
        int32_t id = vocab_find(a->vocab, phi3_right[i], strlen(phi3_right[i]));

        if (id != -1)
            a->strips[id] |= STRIP_RIGHT;
    }
}

static enum status init_strips(struct added *a, const struct gguf *g, struct reason *why)
{
    enum status s;

    a->strips = calloc(a->vocab->n, sizeof *a->strips);
    if (a->strips == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory for added tokens");
    if (is_plain_phi3(g))
        set_phi3_strips(a);
    s = read_strips(a, g, left_key, STRIP_LEFT, why);
    return s == ST_OK ? read_strips(a, g, right_key, STRIP_RIGHT, why) : s;
}

enum status added_init(struct added *a, const struct vocab *v, const struct gguf *g,
                       struct reason *why)
{
    size_t n_nodes = 1;
    int32_t n = 1;
    enum status s;

    *a = (struct added){.vocab = v};
    memset(a->first, -1, sizeof a->first);
    s = count_nodes(v, &n_nodes, why);
    if (s != ST_OK)
        return s;
    a->nodes = calloc(n_nodes, sizeof *a->nodes);
    if (a->nodes == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory for added tokens");
    a->nodes[0].id = -1;
    for (uint32_t i = 0; i < v->n; i++)
        if (vocab_is_added(v, (int32_t)i))
            insert(a, &v->tokens[i], (int32_t)i, &n);
    return init_strips(a, g, why);
}

void added_dispose(struct added *a)
{
    free(a->nodes);
    free(a->strips);
}

size_t added_skip(const struct added *a, const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && a->first[(unsigned char)text[n]] == -1)
        n++;
    return n;
}

int32_t added_match(const struct added *a, const char *text, size_t len, size_t control_len,
                    size_t *match_len)
{
    int32_t node = 0, found = -1;

    for (size_t i = 0; i < len; i++) {
        int32_t id;

        node = find_child(a, node, (unsigned char)text[i]);
        if (node == -1)
            break;
        id = a->nodes[node].id;
        if (id == -1 || (vocab_is_control(a->vocab, id) && i >= control_len))
            continue;
        found = id;
        *match_len = i + 1;
    }
    return found;
}

/* Unicode's White_Space, which is what the original's \s matches. */
static bool is_white_space(uint32_t cp)
{
    return (cp >= '\t' && cp <= '\r') || cp == 0x85 || cp == 0x2028 || cp == 0x2029 ||
           utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ZS;
}

/* Bytes of the white space character that text begins with; 0: it begins with none. */
static size_t white_space(const char *text, size_t len)
{
    uint32_t cp = 0;
    int bytes = utf8_decode(text, len, &cp);

    return bytes > 0 && is_white_space(cp) ? (size_t)bytes : 0;
}

/* Where the character before `at` > 0 begins. */
static size_t previous_char(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

size_t added_begin(const struct added *a, int32_t id, const char *text, size_t from, size_t at)
{
    if ((a->strips[id] & STRIP_LEFT) == 0)
        return at;
    while (at > from) {
        size_t i = previous_char(text, at);

        if (white_space(text + i, at - i) == 0)
            break;
        at = i;
    }
    return at;
}

size_t added_end(const struct added *a, int32_t id, const char *text, size_t at, size_t len)
{
    size_t n = (a->strips[id] & STRIP_RIGHT) != 0 ? white_space(text + at, len - at) : 0;

    while (n > 0) {
        at += n;
        n = white_space(text + at, len - at);
    }
    return at;
}
