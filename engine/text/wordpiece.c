/* WordPiece as BERT uses it (Devlin et al. 2018): text is cleaned, accents and case are dropped, it
 * is cut at spaces and around punctuation and Chinese characters, and each word is parted from its
 * beginning by the longest token that fits. In GGUF files a token that begins a word has U+2581
 * before it, and one that goes on in it has nothing. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/size.h"
#include "base/utf8.h"
#include "engine/text/normalize.h"
#include "engine/text/special.h"
#include "engine/text/text_model.h"
#include "engine/text/trie.h"

/* Longer words are unknown as they are (max_input_chars_per_word of the original). */
#define WORD_CHARS_MAX 100

struct wordpiece {
    struct text_model base;
    const struct vocab *vocab;
    struct trie trie;    /* of tokens that plain text may become, as spelled */
    uint32_t word_start; /* the trie's node behind U+2581; TRIE_ROOT: no token begins a word */
    bool lowers;         /* drops case and accents */
    int32_t unknown;     /* -1: words that can't be spelled are left out */
};

static void free_wordpiece(struct text_model *m)
{
    struct wordpiece *p = (struct wordpiece *)m;

    trie_dispose(&p->trie);
    free(p);
}

/* ---- words ---- */

static bool is_space(int32_t cp)
{
    return cp == ' ' || (cp >= 0x09 && cp <= 0x0D) || cp == 0x85 || cp == 0x2028 || cp == 0x2029 ||
           utf8proc_category(cp) == UTF8PROC_CATEGORY_ZS;
}

/* Dropped: U+0000, U+FFFD and what Unicode counts as control, format, surrogate or private use; the
 * original does so before it looks for spaces, but for these three. */
static bool is_dropped(int32_t cp)
{
    if (cp == '\t' || cp == '\n' || cp == '\r')
        return false;
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
        return true;
    default:
        return cp == 0xFFFD;
    }
}

/* All of ASCII's that is neither letter, digit nor space, and Unicode's. */
static bool is_punctuation(int32_t cp)
{
    if (cp < 0x80)
        return (cp >= '!' && cp <= '/') || (cp >= ':' && cp <= '@') || (cp >= '[' && cp <= '`') ||
               (cp >= '{' && cp <= '~');
    switch (utf8proc_category(cp)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return true;
    default:
        return false;
    }
}

/* The blocks of CJK ideographs that the original names. */
static const struct {
    int32_t first, last;
} ideographs[] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
};

static bool is_ideograph(int32_t cp)
{
    for (size_t i = 0; i < COUNT_OF(ideographs); i++)
        if (cp >= ideographs[i].first && cp <= ideographs[i].last)
            return true;
    return false;
}

static void put(int32_t cp, struct buf *out)
{
    char bytes[4];

    buf_append(out, bytes, utf8_encode((uint32_t)cp, bytes));
}

/* Without what is dropped, with a space around ideographs: before accents go, since some of these
 * decompose into others. */
static void clean(const char *text, size_t len, struct buf *out)
{
    for (size_t i = 0; i < len;) {
        uint32_t cp = 0;

        i += (size_t)utf8_decode(text + i, len - i, &cp);
        if (is_dropped((int32_t)cp))
            continue;
        if (is_ideograph((int32_t)cp))
            buf_putc(out, ' ');
        put((int32_t)cp, out);
        if (is_ideograph((int32_t)cp))
            buf_putc(out, ' ');
    }
}

/* Replaces the text by one without accents and case. */
static enum status lower(struct buf *text)
{
    int32_t *cps = NULL;
    size_t n = 0;
    enum status s = normalize_nfd(text->data, text->len, &cps, &n);

    if (s != ST_OK)
        return s;
    buf_clear(text);
    for (size_t i = 0; i < n; i++)
        if (utf8proc_category(cps[i]) != UTF8PROC_CATEGORY_MN)
            put(utf8proc_tolower(cps[i]), text);
    free(cps);
    return ST_OK;
}

/* Length of the word at text: up to a space or punctuation, which is a word by itself. */
static size_t word_length(const char *text, size_t len)
{
    size_t at = 0;

    while (at < len) {
        uint32_t cp = 0;
        size_t n = (size_t)utf8_decode(text + at, len - at, &cp);

        if (is_punctuation((int32_t)cp))
            return at > 0 ? at : n;
        if (is_space((int32_t)cp))
            return at;
        at += n;
    }
    return at;
}

/* ---- their tokens ---- */

static bool is_too_long(const char *word, size_t len)
{
    size_t chars = 0;

    for (size_t i = 0; i < len; i++)
        chars += ((unsigned char)word[i] & 0xC0) != 0x80;
    return chars > WORD_CHARS_MAX;
}

static enum status add_unknown(const struct wordpiece *p, struct encode_work *w)
{
    return p->unknown != -1 ? encode_work_add(w, p->unknown) : ST_OK;
}

/* Where a word goes on, a U+2581 is a character like others: it begins no other token than its own.
 */
static size_t rest_length(const char *text, size_t len)
{
    return len > VOCAB_SPACE_BYTES && memcmp(text, VOCAB_SPACE, VOCAB_SPACE_BYTES) == 0
               ? VOCAB_SPACE_BYTES
               : len;
}

/* All of a word or nothing. */
static enum status encode_word(const void *model, struct encode_work *w, const char *word,
                               size_t len)
{
    const struct wordpiece *p = model;
    const size_t first = w->out->n;
    uint32_t node = p->word_start;
    enum status s = ST_OK;

    if (node == TRIE_ROOT || is_too_long(word, len))
        return add_unknown(p, w);
    for (size_t at = 0, n = 0; at < len && s == ST_OK; at += n) {
        size_t rest = at > 0 ? rest_length(word + at, len - at) : len;
        int32_t id = trie_longest(&p->trie, node, word + at, rest, &n);

        if (id == -1) {
            w->out->n = first;
            return add_unknown(p, w);
        }
        s = encode_work_add(w, id);
        node = TRIE_ROOT;
    }
    return s;
}

static enum status encode(const struct text_model *m, struct encode_work *w, const char *text,
                          size_t len)
{
    const struct wordpiece *p = (const struct wordpiece *)m;
    struct buf *words = &w->normal;
    enum status s = ST_OK;

    buf_clear(words);
    piece_cache_forget(&w->cache);
    clean(text, len, words);
    if (p->lowers && !words->failed)
        s = lower(words);
    if (words->failed)
        s = ST_NO_MEMORY;
    for (size_t at = 0, n; at < words->len && s == ST_OK; at += n) {
        n = word_length(words->data + at, words->len - at);
        if (n > 0)
            s = encode_work_piece(w, words->data + at, n, encode_word, p);
        else
            n = (size_t)utf8_decode(words->data + at, words->len - at, NULL); /* a space */
    }
    return s;
}

static const struct text_model_ops ops = {free_wordpiece, encode};

/* ---- making one ---- */

static bool is_plain(const struct vocab *v, uint32_t id)
{
    return v->tokens[id].text_len > 0 && !vocab_is_control(v, (int32_t)id) &&
           v->tokens[id].type != TOKEN_UNUSED;
}

static enum status make_trie(struct wordpiece *p, struct reason *why)
{
    const struct vocab *v = p->vocab;
    size_t bytes = 0;
    enum status s;

    for (uint32_t i = 0; i < v->n; i++)
        if (is_plain(v, i))
            bytes += v->tokens[i].text_len;
    s = trie_init(&p->trie, bytes);
    if (s != ST_OK)
        return fail(why, s, "the vocabulary has too much text for WordPiece, or for memory");
    for (uint32_t i = 0; i < v->n; i++)
        if (is_plain(v, i))
            trie_add(&p->trie, v->tokens[i].text, v->tokens[i].text_len, (int32_t)i);
    for (size_t i = 0; i < VOCAB_SPACE_BYTES; i++) {
        p->word_start = trie_step(&p->trie, p->word_start, (unsigned char)VOCAB_SPACE[i]);
        if (p->word_start == TRIE_ROOT)
            break;
    }
    return ST_OK;
}

enum status wordpiece_new(const struct vocab *v, const struct gguf *g, struct text_model **out,
                          struct reason *why)
{
    struct wordpiece *p = calloc(1, sizeof *p);
    enum status s;

    if (p == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    p->base =
        (struct text_model){.ops = &ops, .adds_bos = true, .adds_eos = true, .adds_space = true};
    p->vocab = v;
    p->lowers = true;
    /* The format has no key for it: this one comes with files made from a Hugging Face folder. */
    (void)gguf_get_bool(g, "sluice.tokenizer.lowercase", &p->lowers);
    s = special_unknown(v, g, &p->unknown, why);
    if (s == ST_OK)
        s = make_trie(p, why);
    if (s != ST_OK) {
        free_wordpiece(&p->base);
        return s;
    }
    *out = &p->base;
    return ST_OK;
}
