/* SentencePiece BPE (Kudo, Richardson 2018) as llama, mistral and gemma use it: spaces are written
 * U+2581, one is put before a text where the file asks for it, characters are merged by score or by
 * the file's list, and what the vocabulary lacks becomes byte tokens. */
#include <assert.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "engine/text/special.h"
#include "engine/text/spaces.h"
#include "engine/text/text_model.h"

struct spm {
    struct text_model base;
    const struct vocab *vocab;
    struct merges merges;
    struct spaces_where where;
    bool spells_all;        /* it has a token for every byte */
    int32_t unknown;        /* -1: what can't be spelled is left out */
    int32_t ascii_ids[128]; /* of single characters; -1: none */
    int32_t byte_ids[256];
};

static void free_spm(struct text_model *m)
{
    struct spm *p = (struct spm *)m;

    merges_dispose(&p->merges);
    free(p);
}

static int32_t char_id(const struct spm *p, const char *c, size_t len)
{
    return len == 1 ? p->ascii_ids[(unsigned char)*c] : vocab_find_plain(p->vocab, c, len);
}

/* A character by its bytes, or as unknown; at most `len` ids. */
static size_t spell_char(const struct spm *p, const char *c, size_t len, int32_t *ids)
{
    for (size_t i = 0; i < len; i++) {
        ids[i] = p->byte_ids[(unsigned char)c[i]];
        if (ids[i] == -1) {
            ids[0] = p->unknown;
            return p->unknown != -1;
        }
    }
    return len;
}

static size_t fill_ids(const struct spm *p, const char *text, size_t len, int32_t *ids)
{
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        int bytes = utf8_decode(text + i, len - i, NULL);
        int32_t id;

        assert(bytes > 0);
        id = char_id(p, text + i, (size_t)bytes);
        if (id != -1)
            ids[n++] = id;
        else
            n += spell_char(p, text + i, (size_t)bytes, ids + n);
        i += (size_t)bytes;
    }
    return n;
}

/* A run of unknown characters is one unknown token. */
static enum status add_ids(const struct spm *p, struct encode_work *w, size_t n)
{
    enum status s = ST_OK;

    for (size_t i = 0; i < n && s == ST_OK; i++)
        if (i == 0 || w->merge.ids[i] != p->unknown || w->merge.ids[i - 1] != p->unknown)
            s = encode_work_add(w, w->merge.ids[i]);
    return s;
}

static enum status encode_word(const void *model, struct encode_work *w, const char *text,
                               size_t len)
{
    const struct spm *p = model;
    enum status s = encode_work_check(w, p->spells_all ? len : 0, p->vocab->text_max);

    if (s != ST_OK || len > INT32_MAX)
        return s != ST_OK ? s : ST_TOO_LARGE;
    if (!merge_work_reserve(&w->merge, len))
        return ST_NO_MEMORY;
    return add_ids(p, w, merges_apply(&p->merges, &w->merge, fill_ids(p, text, len, w->merge.ids)));
}

static enum status encode(const struct text_model *m, struct encode_work *w, const char *text,
                          size_t len)
{
    const struct spm *p = (const struct spm *)m;

    buf_clear(&w->normal);
    piece_cache_forget(&w->cache);
    if (p->base.adds_space && spaces_prefix_goes(&p->where, w->at_beginning, text, len))
        buf_puts(&w->normal, VOCAB_SPACE);
    spaces_escape(text, len, &w->normal);
    if (w->normal.failed)
        return ST_NO_MEMORY;
    return spaces_cut(p->vocab, w, w->normal.data, w->normal.len, encode_word, p);
}

static const struct text_model_ops ops = {free_spm, encode};

static void find_ids(struct spm *p)
{
    for (int c = 0; c < 128; c++) {
        const char byte = (char)c;

        p->ascii_ids[c] = vocab_find_plain(p->vocab, &byte, 1);
    }
    p->spells_all = true;
    for (int byte = 0; byte < 256; byte++) {
        p->byte_ids[byte] = vocab_find_byte(p->vocab, (unsigned char)byte);
        p->spells_all = p->spells_all && p->byte_ids[byte] != -1;
    }
}

enum status spm_new(const struct vocab *v, const struct gguf *g, struct text_model **out,
                    struct reason *why)
{
    struct spm *p = calloc(1, sizeof *p);
    enum status s;

    if (p == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    p->base = (struct text_model){.ops = &ops, .adds_bos = true};
    p->vocab = v;
    p->base.adds_space = spaces_prefix(g);
    p->where = spaces_prefix_where(g);
    find_ids(p);
    s = special_unknown(v, g, &p->unknown, why);
    if (s == ST_OK)
        s = v->has_scores ? merges_from_scores(&p->merges, v, why)
                          : merges_from_list(&p->merges, v, g, why);
    if (s != ST_OK) {
        free_spm(&p->base);
        return s;
    }
    *out = &p->base;
    return ST_OK;
}
