/* Byte-level BPE (GPT-2's and those after it): a text is normalized where the original is, cut into
 * pre-tokens, and the bytes of each are merged. A byte that the vocabulary lacks is left out, as
 * Hugging Face's tokenizers do with such files (SmolLM2 lacks those that UTF-8 never has, and some
 * control characters): its unknown token is a control token, and user text must not turn into one.
 */
#include <stdlib.h>

#include "engine/text/byte_alphabet.h"
#include "engine/text/normalize.h"
#include "engine/text/text_model.h"

struct bpe {
    struct text_model base;
    const struct vocab *vocab;
    struct merges merges;
    struct pretokenizer *pre;
    struct pretokenizer_traits traits;
    int32_t byte_ids[256]; /* -1: the vocabulary lacks the byte */
};

static void free_bpe(struct text_model *m)
{
    struct bpe *b = (struct bpe *)m;

    pretokenizer_free(b->pre);
    merges_dispose(&b->merges);
    free(b);
}

/* Id of the token that spells the whole pre-token; -1: none. */
static int32_t find_whole(const struct bpe *b, const char *text, size_t len)
{
    char spelled[512];

    if (len > sizeof spelled / BYTE_ALPHABET_CHAR_MAX || len > b->vocab->piece_max)
        return -1;
    return vocab_find_plain(b->vocab, spelled, byte_alphabet_encode_text(text, len, spelled));
}

static size_t fill_ids(const struct bpe *b, int32_t *ids, const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int32_t id = b->byte_ids[(unsigned char)text[i]];

        if (id != -1)
            ids[n++] = id;
    }
    return n;
}

static enum status encode_piece(const void *model, struct encode_work *w, const char *text,
                                size_t len)
{
    const struct bpe *b = model;
    int32_t whole = b->traits.whole_first ? find_whole(b, text, len) : -1;
    enum status s;
    size_t n;

    if (whole != -1)
        return encode_work_add(w, whole);
    if (!merge_work_reserve(&w->merge, len))
        return ST_NO_MEMORY;
    n = fill_ids(b, w->merge.ids, text, len);
    s = encode_work_check(w, n, b->vocab->piece_max);
    if (s != ST_OK)
        return s;
    n = merges_apply(&b->merges, &w->merge, n);
    for (size_t i = 0; i < n && s == ST_OK; i++)
        s = encode_work_add(w, w->merge.ids[i]);
    return s;
}

/* One call's pre-tokens. */
struct pieces {
    const struct bpe *bpe;
    struct encode_work *work;
};

static enum status on_piece(void *arg, const char *text, size_t len)
{
    const struct pieces *p = arg;

    return encode_work_piece(p->work, text, len, encode_piece, p->bpe);
}

/* Text in normal form stays where it is; else *text and *len are those of the working copy. */
static enum status normalize(const struct bpe *b, struct encode_work *w, const char **text,
                             size_t *len)
{
    enum status s;

    if (!b->traits.nfc || normalize_is_plain(*text, *len))
        return ST_OK;
    buf_clear(&w->normal);
    piece_cache_forget(&w->cache); /* its pieces lay there */
    s = normalize_nfc(*text, *len, &w->normal);
    *text = w->normal.data;
    *len = w->normal.len;
    return s;
}

static enum status encode(const struct text_model *m, struct encode_work *w, const char *text,
                          size_t len)
{
    const struct bpe *b = (const struct bpe *)m;
    struct pieces p = {b, w};
    enum status s = normalize(b, w, &text, &len);

    if (s != ST_OK)
        return s;
    if (w->cut == NULL)
        w->cut = pretokenize_scratch_new(b->pre);
    return w->cut != NULL ? pretokenize(b->pre, w->cut, text, len, on_piece, &p) : ST_NO_MEMORY;
}

static const struct text_model_ops ops = {free_bpe, encode};

static enum status read_pre(struct bpe *b, const struct gguf *g, struct reason *why)
{
    const char *key = "tokenizer.ggml.pre";
    struct gguf_string name;

    if (!gguf_get_string(g, key, &name))
        return fail_param(why, ST_UNSUPPORTED, key, "the file names no pre-tokenizer (%s)", key);
    return pretokenizer_new(&name, &b->pre, &b->traits, why);
}

enum status bpe_new(const struct vocab *v, const struct gguf *g, struct text_model **out,
                    struct reason *why)
{
    struct bpe *b = calloc(1, sizeof *b);
    enum status s;

    if (b == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    b->base.ops = &ops;
    b->vocab = v;
    s = read_pre(b, g, why);
    if (s == ST_OK)
        s = merges_from_list(&b->merges, v, g, why);
    if (s != ST_OK) {
        free_bpe(&b->base);
        return s;
    }
    for (int byte = 0; byte < 256; byte++)
        b->byte_ids[byte] = vocab_find_byte(v, (unsigned char)byte);
    b->base.adds_bos = b->traits.adds_bos;
    *out = &b->base;
    return ST_OK;
}
