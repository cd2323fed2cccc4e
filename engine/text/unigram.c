/* SentencePiece Unigram (Kudo 2018), as T5 and the multilingual encoders use it: the text is
 * normalized by the file's own map, then parted into the tokens whose scores (log-probabilities)
 * have the highest sum. */
#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/charsmap.h"
#include "engine/text/spaces.h"
#include "engine/text/special.h"
#include "engine/text/text_model.h"
#include "engine/text/trie.h"

/* What an unknown character costs beyond the worst token (SentencePiece's kUnkPenalty). */
#define UNKNOWN_PENALTY 10.0

/* Pieces have some dozens of bytes: the work for each character of a text is bounded by the
 * longest.
 */
#define PIECE_BYTES_MAX 256

/* Normalized text is at most this many times as long, and then some: NFKC needs 11. */
#define GROWTH_MAX 16

struct unigram {
    struct text_model base;
    const struct vocab *vocab;
    struct charsmap map;
    struct trie trie; /* of normal tokens */
    bool merges_spaces;
    int32_t unknown; /* -1: unknown characters are left out */
    double unknown_score;
    int32_t byte_ids[256];
    bool has_bytes; /* all of them: unknown characters become bytes */
};

/* The best way to this place in the text. */
struct lattice_node {
    double score;  /* -DBL_MAX: not reached */
    uint32_t from; /* where its last token begins */
    int32_t id;    /* -1: an unknown character */
};

static void free_unigram(struct text_model *m)
{
    struct unigram *u = (struct unigram *)m;

    charsmap_dispose(&u->map);
    trie_dispose(&u->trie);
    free(u);
}

/* ---- normalizing ---- */

/* The next bit of normalized text, and how much of the raw one it stands for: by the map, else a
 * character as it is. */
static size_t next_bit(const struct unigram *u, const char *text, size_t len, const char **bit,
                       size_t *bit_len)
{
    size_t taken;

    if (charsmap_match(&u->map, text, len, bit, &taken)) {
        *bit_len = strlen(*bit);
        return taken;
    }
    taken = (size_t)utf8_decode(text, len, NULL);
    *bit = text;
    *bit_len = taken;
    return taken;
}

/* Spaces at the beginning, as SentencePiece looks for them: bits that are just one. */
static size_t leading_spaces(const struct unigram *u, const char *text, size_t len)
{
    size_t at = 0;

    while (at < len) {
        const char *bit;
        size_t n, taken = next_bit(u, text + at, len - at, &bit, &n);

        if (n != 1 || *bit != ' ')
            break;
        at += taken;
    }
    return at;
}

static void strip_end(struct buf *b)
{
    while (b->len >= VOCAB_SPACE_BYTES &&
           memcmp(b->data + b->len - VOCAB_SPACE_BYTES, VOCAB_SPACE, VOCAB_SPACE_BYTES) == 0)
        b->len -= VOCAB_SPACE_BYTES;
}

static void normalize(const struct unigram *u, const char *text, size_t len, struct buf *out)
{
    size_t at = u->merges_spaces ? leading_spaces(u, text, len) : 0;
    bool after_space = u->merges_spaces;

    if (at < len && u->base.adds_space)
        buf_puts(out, VOCAB_SPACE);
    while (at < len) {
        const char *bit;
        size_t n;

        at += next_bit(u, text + at, len - at, &bit, &n);
        for (; after_space && n > 0 && *bit == ' '; bit++)
            n--;
        if (n == 0)
            continue;
        spaces_escape(bit, n, out);
        after_space = u->merges_spaces && bit[n - 1] == ' ';
    }
    if (u->merges_spaces)
        strip_end(out);
}

/* ---- the lattice ---- */

static bool reserve_lattice(struct encode_work *w, size_t n)
{
    if (n <= w->n_lattice)
        return true;
    n = n < 256 ? 256 : n;
    free(w->lattice);
    w->lattice = calloc(n, sizeof *w->lattice);
    w->n_lattice = w->lattice != NULL ? n : 0;
    return w->lattice != NULL;
}

static void offer(struct lattice_node *to, double score, size_t from, int32_t id)
{
    if (score > to->score)
        *to = (struct lattice_node){score, (uint32_t)from, id};
}

/* Offers every token that begins at `from`, and an unknown character where none is as short as one.
 */
static void extend(const struct unigram *u, struct lattice_node *nodes, const char *text,
                   size_t len, size_t from)
{
    int char_len = utf8_decode(text + from, len - from, NULL);
    uint32_t node = TRIE_ROOT;
    bool has_single = false;

    assert(char_len > 0);
    for (size_t i = from; i < len; i++) {
        int32_t id;

        node = trie_step(&u->trie, node, (unsigned char)text[i]);
        if (node == TRIE_ROOT)
            break;
        id = u->trie.ids[node];
        if (id == -1)
            continue;
        offer(&nodes[i + 1], nodes[from].score + (double)u->vocab->tokens[id].score, from, id);
        has_single = has_single || i + 1 - from == (size_t)char_len;
    }
    if (!has_single)
        offer(&nodes[from + (size_t)char_len], nodes[from].score + u->unknown_score, from, -1);
}

static enum status add_unknown(const struct unigram *u, struct encode_work *w, const char *text,
                               size_t len, bool goes_on)
{
    enum status s = ST_OK;

    if (!u->has_bytes)
        return u->unknown == -1 || goes_on ? ST_OK : encode_work_add(w, u->unknown);
    for (size_t i = 0; i < len && s == ST_OK; i++)
        s = encode_work_add(w, u->byte_ids[(unsigned char)text[i]]);
    return s;
}

/* Turns the links of the best path round, so that `from` says where the next token ends. */
static void turn_path(struct lattice_node *nodes, size_t end)
{
    uint32_t next = (uint32_t)end, at = (uint32_t)end;

    while (at > 0) {
        uint32_t before = nodes[at].from;

        nodes[at].from = next;
        next = at;
        at = before;
    }
    nodes[0].from = next;
}

/* A run of unknown characters is one unknown token. */
static enum status add_path(const struct unigram *u, struct encode_work *w, const char *text,
                            size_t len)
{
    const struct lattice_node *nodes = w->lattice;
    bool was_unknown = false;
    enum status s = ST_OK;

    turn_path(w->lattice, len);
    for (size_t at = 0; at < len && s == ST_OK;) {
        size_t end = nodes[at].from;

        if (nodes[end].id != -1)
            s = encode_work_add(w, nodes[end].id);
        else
            s = add_unknown(u, w, text + at, end - at, was_unknown);
        was_unknown = nodes[end].id == -1;
        at = end;
    }
    return s;
}

static enum status encode_word(const void *model, struct encode_work *w, const char *text,
                               size_t len)
{
    const struct unigram *u = model;

    if (len >= INT32_MAX)
        return ST_TOO_LARGE;
    if (!reserve_lattice(w, len + 1))
        return ST_NO_MEMORY;
    w->lattice[0] = (struct lattice_node){0};
    for (size_t i = 1; i <= len; i++)
        w->lattice[i].score = -DBL_MAX;
    for (size_t i = 0; i < len; i++)
        if (w->lattice[i].score > -DBL_MAX)
            extend(u, w->lattice, text, len, i);
    return add_path(u, w, text, len);
}

static enum status encode(const struct text_model *m, struct encode_work *w, const char *text,
                          size_t len)
{
    const struct unigram *u = (const struct unigram *)m;

    if (len > SIZE_MAX / GROWTH_MAX - GROWTH_MAX)
        return ST_TOO_LARGE;
    buf_clear(&w->normal);
    piece_cache_forget(&w->cache);
    w->normal.limit = (len + 1) * GROWTH_MAX;
    normalize(u, text, len, &w->normal);
    if (w->normal.failed)
        return ST_TOO_LARGE;
    return spaces_cut(u->vocab, w, w->normal.data, w->normal.len, encode_word, u);
}

static const struct text_model_ops ops = {free_unigram, encode};

/* ---- making one ---- */

static enum status read_map(struct unigram *u, const struct gguf *g, struct reason *why)
{
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const void *data;
    size_t len;

    if (!gguf_has(g, key))
        return ST_OK;
    if (!gguf_array_bytes(g, key, &data, &len))
        return fail_param(why, ST_CORRUPT, key, "%s is not a list of bytes", key);
    return len > 0 ? charsmap_init(&u->map, data, len, why) : ST_OK;
}

static enum status make_trie(struct unigram *u, struct reason *why)
{
    const struct vocab *v = u->vocab;
    double worst = 0.0;
    size_t bytes = 0;
    enum status s;

    for (uint32_t i = 0; i < v->n; i++) {
        if (v->tokens[i].type != TOKEN_NORMAL)
            continue;
        bytes += v->tokens[i].text_len;
        if (v->tokens[i].text_len > PIECE_BYTES_MAX)
            return fail_param(why, ST_TOO_LARGE, "tokenizer.ggml.tokens",
                              "token %u has %u bytes; at most %d in a Unigram vocabulary", i,
                              v->tokens[i].text_len, PIECE_BYTES_MAX);
    }
    s = trie_init(&u->trie, bytes);
    if (s != ST_OK)
        return fail(why, s, "the vocabulary has too much text for a Unigram model, or for memory");
    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];

        if (t->type != TOKEN_NORMAL || t->text_len == 0)
            continue;
        trie_add(&u->trie, t->text, t->text_len, (int32_t)i);
        if ((double)t->score < worst)
            worst = (double)t->score;
    }
    u->unknown_score = worst - UNKNOWN_PENALTY;
    return ST_OK;
}

static void find_bytes(struct unigram *u)
{
    u->has_bytes = true;
    for (int byte = 0; byte < 256; byte++) {
        u->byte_ids[byte] = vocab_find_byte(u->vocab, (unsigned char)byte);
        u->has_bytes = u->has_bytes && u->byte_ids[byte] != -1;
    }
}

static enum status build(struct unigram *u, const struct gguf *g, struct reason *why)
{
    enum status s;

    if (!u->vocab->has_scores)
        return fail_param(why, ST_CORRUPT, "tokenizer.ggml.scores",
                          "a Unigram vocabulary needs scores (tokenizer.ggml.scores)");
    u->base.adds_space = spaces_prefix(g);
    (void)gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &u->merges_spaces);
    find_bytes(u);
    s = special_unknown(u->vocab, g, &u->unknown, why);
    if (s == ST_OK)
        s = read_map(u, g, why);
    return s == ST_OK ? make_trie(u, why) : s;
}

enum status unigram_new(const struct vocab *v, const struct gguf *g, struct text_model **out,
                        struct reason *why)
{
    struct unigram *u = calloc(1, sizeof *u);
    enum status s;

    if (u == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    u->base = (struct text_model){.ops = &ops, .adds_eos = true};
    u->vocab = v;
    s = build(u, g, why);
    if (s != ST_OK) {
        free_unigram(&u->base);
        return s;
    }
    *out = &u->base;
    return ST_OK;
}
