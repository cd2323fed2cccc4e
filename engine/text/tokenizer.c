#include "engine/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/utf8.h"
#include "engine/text/added.h"
#include "engine/text/bpe.h"
#include "engine/text/pretokenize.h"
#include "engine/text/token_ids.h"
#include "engine/text/vocab.h"

struct tokenizer {
    struct vocab vocab;
    struct added added;
    struct bpe bpe;
    struct pretokenizer *pre;
    int32_t bos_id, eos_id; /* -1: none */
    bool adds_bos;
    bool *is_eog; /* by id */
};

/* Metadata that names tokens which end a generation. */
static const char *const eog_keys[] = {
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};

/* Files often name only one of them: control tokens with these texts end a turn, too. */
static const char *const eog_texts[] = {
    "<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>",
    "<|end_of_text|>", "<|endofturn|>", "<|end|>",    "<|return|>", "<|call|>",
    "<|eot|>",         "<EOT>",         "</s>",       "<eos>",
};

/* -1 where the file lacks the key. */
static enum status get_id(const struct tokenizer *t, const struct gguf *g, const char *key,
                          int32_t *out, struct reason *why)
{
    uint32_t id;

    *out = -1;
    if (!gguf_has(g, key))
        return ST_OK;
    if (!gguf_get_u32(g, key, &id) || id >= t->vocab.n)
        return fail_param(why, ST_CORRUPT, key, "%s names no token of the vocabulary", key);
    *out = (int32_t)id;
    return ST_OK;
}

static enum status read_eog(struct tokenizer *t, const struct gguf *g, struct reason *why)
{
    t->is_eog = calloc(t->vocab.n, sizeof *t->is_eog);
    if (t->is_eog == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < COUNT_OF(eog_keys); i++) {
        int32_t id;
        enum status s = get_id(t, g, eog_keys[i], &id, why);

        if (s != ST_OK)
            return s;
        if (id != -1)
            t->is_eog[id] = true;
    }
    for (size_t i = 0; i < COUNT_OF(eog_texts); i++) {
        int32_t id = vocab_find(&t->vocab, eog_texts[i], strlen(eog_texts[i]));

        if (id != -1 && vocab_is_control(&t->vocab, id))
            t->is_eog[id] = true;
    }
    return ST_OK;
}

static enum status check_kind(const struct gguf *g, struct reason *why)
{
    const char *key = "tokenizer.ggml.model";
    struct gguf_string kind;
    bool space = false;

    if (!gguf_get_string(g, key, &kind))
        return fail_param(why, ST_CORRUPT, key, "the file has no tokenizer (%s)", key);
    if (kind.len != 4 || memcmp(kind.data, "gpt2", 4) != 0)
        return fail_param(why, ST_UNSUPPORTED, key,
                          "the tokenizer is not a byte-level BPE (%s must be gpt2)", key);
    if (gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &space) && space)
        return fail_param(why, ST_UNSUPPORTED, "tokenizer.ggml.add_space_prefix",
                          "tokenizer.ggml.add_space_prefix is not supported");
    return ST_OK;
}

static enum status read_pre(struct tokenizer *t, const struct gguf *g,
                            struct pretokenizer_traits *traits, struct reason *why)
{
    const char *key = "tokenizer.ggml.pre";
    struct gguf_string name;

    if (!gguf_get_string(g, key, &name))
        return fail_param(why, ST_UNSUPPORTED, key, "the file names no pre-tokenizer (%s)", key);
    return pretokenizer_new(&name, &t->pre, traits, why);
}

static enum status read_specials(struct tokenizer *t, const struct gguf *g, bool adds_bos,
                                 struct reason *why)
{
    enum status s = get_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos_id, why);

    if (s == ST_OK)
        s = get_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos_id, why);
    if (s != ST_OK)
        return s;
    t->adds_bos = adds_bos;
    (void)gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos);
    if (t->adds_bos && t->bos_id == -1)
        return fail_param(why, ST_CORRUPT, "tokenizer.ggml.bos_token_id",
                          "the file asks for a BOS token and names none");
    return read_eog(t, g, why);
}

static enum status build(struct tokenizer *t, const struct gguf *g, struct reason *why)
{
    struct pretokenizer_traits traits = {false, false};
    enum status s = check_kind(g, why);

    if (s == ST_OK)
        s = read_pre(t, g, &traits, why);
    if (s == ST_OK)
        s = vocab_init(&t->vocab, g, why);
    if (s == ST_OK)
        s = added_init(&t->added, &t->vocab, why);
    if (s == ST_OK)
        s = bpe_init(&t->bpe, &t->vocab, g, traits.whole_first, why);
    return s == ST_OK ? read_specials(t, g, traits.adds_bos, why) : s;
}

enum status tokenizer_new(const struct gguf *g, struct tokenizer **out, struct reason *why)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    enum status s;

    if (t == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    s = build(t, g, why);
    if (s != ST_OK) {
        tokenizer_free(t);
        return s;
    }
    *out = t;
    return ST_OK;
}

void tokenizer_free(struct tokenizer *t)
{
    if (t == NULL)
        return;
    pretokenizer_free(t->pre);
    bpe_dispose(&t->bpe);
    added_dispose(&t->added);
    vocab_dispose(&t->vocab);
    free(t->is_eog);
    free(t);
}

/* One call of tokenizer_encode. */
struct encoding {
    const struct tokenizer *t;
    const struct text_span *spans;
    size_t n_spans;
    const char *text; /* of all spans */
    size_t len;
    struct pretokenize_scratch *cut;
    struct bpe_scratch merge;
    size_t max_tokens;
    struct token_ids *out;
};

static enum status on_piece(void *arg, const char *s, size_t n)
{
    struct encoding *e = arg;

    return bpe_encode(&e->t->bpe, &e->merge, s, n, e->max_tokens, e->out);
}

static enum status encode_plain(struct encoding *e, size_t from, size_t to)
{
    return pretokenize(e->t->pre, e->cut, e->text + from, to - from, on_piece, e);
}

/* Cuts the text at added tokens; what lies between them is plain text. A control token counts only
 * where all of it is in one span that allows it. */
static enum status encode_text(struct encoding *e)
{
    size_t plain = 0, at = 0, span = 0, span_end = e->spans[0].len, match_len = 0;
    enum status s = ST_OK;

    while (at < e->len && s == ST_OK) {
        int32_t id;

        while (at >= span_end)
            span_end += e->spans[++span].len;
        id = added_match(&e->t->added, e->text + at, e->len - at,
                         e->spans[span].control ? span_end - at : 0, &match_len);
        if (id == -1) {
            at++;
            continue;
        }
        s = encode_plain(e, plain, at);
        if (s == ST_OK)
            s = token_ids_add(e->out, id, e->max_tokens);
        at += match_len;
        plain = at;
    }
    return s == ST_OK ? encode_plain(e, plain, e->len) : s;
}

/* One span is used where it lies, several are joined; *joined is the caller's to free. */
static enum status join(struct encoding *e, char **joined)
{
    size_t at = 0;

    for (size_t i = 0; i < e->n_spans; i++) {
        if (!utf8_is_valid(e->spans[i].text, e->spans[i].len))
            return ST_INVALID;
        if (!size_add(e->len, e->spans[i].len, &e->len))
            return ST_TOO_LARGE;
    }
    e->text = e->n_spans > 0 ? e->spans[0].text : NULL;
    if (e->n_spans <= 1)
        return ST_OK;
    *joined = malloc(e->len + 1);
    if (*joined == NULL)
        return ST_NO_MEMORY;
    for (size_t i = 0; i < e->n_spans; i++) {
        if (e->spans[i].len > 0)
            memcpy(*joined + at, e->spans[i].text, e->spans[i].len);
        at += e->spans[i].len;
    }
    e->text = *joined;
    return ST_OK;
}

static enum status run_encoding(struct encoding *e, bool add_bos)
{
    enum status s = ST_OK;

    if (add_bos && e->t->adds_bos)
        s = token_ids_add(e->out, e->t->bos_id, e->max_tokens);
    if (s != ST_OK || e->len == 0)
        return s;
    e->cut = pretokenize_scratch_new(e->t->pre);
    return e->cut != NULL ? encode_text(e) : ST_NO_MEMORY;
}

enum status tokenizer_encode(const struct tokenizer *t, const struct text_span *spans,
                             size_t n_spans, bool add_bos, size_t max_tokens, struct token_ids *out)
{
    struct encoding e = {
        .t = t, .spans = spans, .n_spans = n_spans, .max_tokens = max_tokens, .out = out};
    const size_t n_before = out->n;
    char *joined = NULL;
    enum status s = join(&e, &joined);

    if (s == ST_OK)
        s = run_encoding(&e, add_bos);
    pretokenize_scratch_free(e.cut);
    bpe_scratch_dispose(&e.merge);
    free(joined);
    if (s != ST_OK)
        out->n = n_before;
    return s;
}

uint32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->vocab.n;
}

static bool is_token(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && (uint32_t)id < t->vocab.n;
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *len)
{
    *len = is_token(t, id) ? t->vocab.tokens[id].piece_len : 0;
    return is_token(t, id) ? t->vocab.tokens[id].piece : "";
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id)
{
    return is_token(t, id) && vocab_is_control(&t->vocab, id);
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    return is_token(t, id) && t->is_eog[id];
}

static const char *text_of(const struct tokenizer *t, int32_t id)
{
    return is_token(t, id) ? t->vocab.tokens[id].text : "";
}

const char *tokenizer_bos_text(const struct tokenizer *t)
{
    return text_of(t, t->bos_id);
}

const char *tokenizer_eos_text(const struct tokenizer *t)
{
    return text_of(t, t->eos_id);
}

int32_t tokenizer_bos_id(const struct tokenizer *t)
{
    return t->bos_id;
}

int32_t tokenizer_eos_id(const struct tokenizer *t)
{
    return t->eos_id;
}
