#include "engine/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "base/size.h"
#include "base/utf8.h"
#include "engine/text/added.h"
#include "engine/text/special.h"
#include "engine/text/text_model.h"
#include "engine/text/vocab.h"

struct tokenizer {
    struct vocab vocab;
    struct added added;
    struct text_model *model;
    int32_t bos_id, eos_id; /* -1: none */
    bool adds_bos, adds_eos;
    bool adds_space;
    bool *is_eog; /* by id */
};

/* By tokenizer.ggml.model; keys in order of preference. */
static const struct kind {
    const char *name;
    enum vocab_spelling spelling;
    text_model_new *make;
    const char *bos_keys[2], *eos_keys[3];
} kinds[] = {
    {"gpt2",
     VOCAB_BYTE_ALPHABET,
     bpe_new,
     {"tokenizer.ggml.bos_token_id"},
     {"tokenizer.ggml.eos_token_id"}},
    {"llama",
     VOCAB_SPACES,
     spm_new,
     {"tokenizer.ggml.bos_token_id"},
     {"tokenizer.ggml.eos_token_id"}},
    {"t5",
     VOCAB_SPACES,
     unigram_new,
     {"tokenizer.ggml.bos_token_id"},
     {"tokenizer.ggml.eos_token_id"}},
    /* BERT's [CLS] and [SEP]; the format spells the second key so. */
    {"bert",
     VOCAB_SPACES,
     wordpiece_new,
     {"tokenizer.ggml.cls_token_id", "tokenizer.ggml.bos_token_id"},
     {"tokenizer.ggml.seperator_token_id", "tokenizer.ggml.separator_token_id",
      "tokenizer.ggml.eos_token_id"}},
};

static enum status fail_kind(const struct gguf_string *name, struct reason *why)
{
    char shown[32];

    printable(name->data, name->len, shown, sizeof shown);
    return fail_param(why, ST_UNSUPPORTED, "tokenizer.ggml.model",
                      "tokenizer \"%s\" (tokenizer.ggml.model) is not supported; supported: gpt2, "
                      "llama, t5, bert",
                      shown);
}

static enum status find_kind(const struct gguf *g, const struct kind **out, struct reason *why)
{
    const char *key = "tokenizer.ggml.model";
    struct gguf_string name;

    if (gguf_is_folder(g) && !gguf_has(g, key))
        return fail_param(why, ST_NOT_FOUND, "tokenizer.json",
                          "the folder has no tokenizer.json (a tokenizer.model alone is not read)");
    if (!gguf_get_string(g, key, &name))
        return fail_param(why, ST_CORRUPT, key, "the file has no tokenizer (%s)", key);
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        *out = &kinds[i];
        if (name.len == strlen(kinds[i].name) && memcmp(name.data, kinds[i].name, name.len) == 0)
            return ST_OK;
    }
    return fail_kind(&name, why);
}

/* The first of the keys that the file has; -1: none. */
static enum status first_id(const struct tokenizer *t, const struct gguf *g,
                            const char *const *keys, size_t n_keys, int32_t *out,
                            struct reason *why)
{
    enum status s = ST_OK;

    *out = -1;
    for (size_t i = 0; i < n_keys && keys[i] != NULL && *out == -1 && s == ST_OK; i++)
        s = special_id(&t->vocab, g, keys[i], out, why);
    return s;
}

static enum status read_specials(struct tokenizer *t, const struct gguf *g, const struct kind *k,
                                 struct reason *why)
{
    enum status s = first_id(t, g, k->bos_keys, COUNT_OF(k->bos_keys), &t->bos_id, why);

    if (s == ST_OK)
        s = first_id(t, g, k->eos_keys, COUNT_OF(k->eos_keys), &t->eos_id, why);
    if (s != ST_OK)
        return s;
    t->adds_bos = t->model->adds_bos && t->bos_id != -1;
    t->adds_eos = t->model->adds_eos && t->eos_id != -1;
    (void)gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos);
    (void)gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->adds_eos);
    if (t->adds_bos && t->bos_id == -1)
        return fail_param(why, ST_CORRUPT, "tokenizer.ggml.bos_token_id",
                          "the file asks for a BOS token and names none");
    if (t->adds_eos && t->eos_id == -1)
        return fail_param(why, ST_CORRUPT, "tokenizer.ggml.eos_token_id",
                          "the file asks for an EOS token and names none");
    return special_eog(&t->vocab, g, &t->is_eog, why);
}

static enum status build(struct tokenizer *t, const struct gguf *g, struct reason *why)
{
    const struct kind *k = NULL;
    enum status s = find_kind(g, &k, why);

    if (s != ST_OK || k == NULL)
        return s;
    s = vocab_init(&t->vocab, g, k->spelling, why);
    if (s == ST_OK)
        s = special_protect(&t->vocab, g, why);
    if (s == ST_OK)
        s = added_init(&t->added, &t->vocab, g, why);
    if (s == ST_OK)
        s = k->make(&t->vocab, g, &t->model, why);
    if (s != ST_OK)
        return s;
    t->adds_space = t->model->adds_space;
    return read_specials(t, g, k, why);
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
    if (t->model != NULL)
        t->model->ops->free(t->model);
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
    struct encode_work work;
};

static enum status encode_plain(struct encoding *e, size_t from, size_t to)
{
    const struct text_model *m = e->t->model;

    e->work.at_beginning = from == 0;
    return to > from ? m->ops->encode(m, &e->work, e->text + from, to - from) : ST_OK;
}

/* Cuts the text at added tokens; what lies between them is plain text. A control token counts only
 * where all of it is in one span that allows it; white space that it takes along may be anywhere.
 */
static enum status encode_text(struct encoding *e)
{
    size_t plain = 0, at = 0, span = 0, span_end = e->spans[0].len, match_len = 0;
    enum status s = ST_OK;

    while (at < e->len && s == ST_OK) {
        int32_t id;

        at += added_skip(&e->t->added, e->text + at, e->len - at);
        if (at == e->len)
            break;
        while (at >= span_end)
            span_end += e->spans[++span].len;
        id = added_match(&e->t->added, e->text + at, e->len - at,
                         e->spans[span].control ? span_end - at : 0, &match_len);
        if (id == -1) {
            at++;
            continue;
        }
        s = encode_plain(e, plain, added_begin(&e->t->added, id, e->text, plain, at));
        if (s == ST_OK)
            s = encode_work_add(&e->work, id);
        at = added_end(&e->t->added, id, e->text, at + match_len, e->len);
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

/* A text that begins with BOS by its own hand (in a span that allows control tokens) has it. */
static bool begins_with_bos(const struct encoding *e)
{
    const size_t control_len = e->n_spans > 0 && e->spans[0].control ? e->spans[0].len : 0;
    size_t match_len;

    return e->len > 0 &&
           added_match(&e->t->added, e->text, e->len, control_len, &match_len) == e->t->bos_id;
}

static enum status run_encoding(struct encoding *e, unsigned add)
{
    const struct tokenizer *t = e->t;
    enum status s = ST_OK;

    if ((add & TOKENIZER_BOS) != 0 && t->adds_bos && !begins_with_bos(e))
        s = encode_work_add(&e->work, t->bos_id);
    if (s == ST_OK && e->len > 0)
        s = encode_text(e);
    if (s == ST_OK && (add & TOKENIZER_EOS) != 0 && t->adds_eos)
        s = encode_work_add(&e->work, t->eos_id);
    return s;
}

enum status tokenizer_encode(const struct tokenizer *t, const struct text_span *spans,
                             size_t n_spans, unsigned add, size_t max_tokens, struct token_ids *out)
{
    struct encoding e = {.t = t, .spans = spans, .n_spans = n_spans};
    const size_t n_before = out->n;
    char *joined = NULL;
    enum status s = join(&e, &joined);

    if (s == ST_OK) {
        s = encode_work_init(&e.work, e.len, max_tokens, out);
        if (s == ST_OK)
            s = run_encoding(&e, add);
        encode_work_dispose(&e.work);
    }
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

bool tokenizer_adds_space(const struct tokenizer *t)
{
    return t->adds_space;
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
