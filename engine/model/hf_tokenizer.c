#include "engine/model/hf_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* The parts of tokenizer.json, and those of its model, as they stand in the file. */
struct parts {
    struct hf_pipeline_parts line;
    struct hf_span added, model;
    struct hf_span type, vocab, merges, unk_token, unk_id, byte_fallback, ignore_merges, dropout,
        word_prefix, word_suffix, word_max;
};

static enum status split(struct hf_span text, struct parts *p, struct reason *why)
{
    const struct hf_pick top[] = {
        {"added_tokens", &p->added},
        {"normalizer", &p->line.normalizer},
        {"pre_tokenizer", &p->line.pre_tokenizer},
        {"post_processor", &p->line.post_processor},
        {"decoder", &p->line.decoder},
        {"model", &p->model},
    };
    const struct hf_pick model[] = {
        {"type", &p->type},
        {"vocab", &p->vocab},
        {"merges", &p->merges},
        {"unk_token", &p->unk_token},
        {"unk_id", &p->unk_id},
        {"byte_fallback", &p->byte_fallback},
        {"ignore_merges", &p->ignore_merges},
        {"dropout", &p->dropout},
        {"continuing_subword_prefix", &p->word_prefix},
        {"end_of_word_suffix", &p->word_suffix},
        {"max_input_chars_per_word", &p->word_max},
    };
    enum status s = hf_json_pick(text, top, COUNT_OF(top), "tokenizer.json", why);

    if (s == ST_OK && p->model.text == NULL)
        s = fail(why, ST_CORRUPT, "tokenizer.json has no model");
    return s == ST_OK
               ? hf_json_pick(p->model, model, COUNT_OF(model), "tokenizer.json's model", why)
               : s;
}

/* The model's type; BPE files of early versions don't name it. */
static enum status find_kind(const struct parts *p, enum hf_kind *kind, struct reason *why)
{
    const bool bytes = hf_span_is(p->byte_fallback, "true");

    if (hf_span_is(p->type, "\"BPE\"") || (p->type.text == NULL && p->merges.text != NULL))
        *kind = bytes ? HF_SPACE_BPE : HF_BYTE_BPE;
    else if (hf_span_is(p->type, "\"Unigram\""))
        *kind = HF_UNIGRAM;
    else if (hf_span_is(p->type, "\"WordPiece\""))
        *kind = HF_WORD_PIECE;
    else
        return fail_param(
            why, ST_UNSUPPORTED, "type",
            "tokenizer.json: a model of type %.*s; supported: BPE, Unigram, WordPiece",
            (int)(p->type.len < 40 ? p->type.len : 40),
            p->type.text != NULL ? p->type.text : "null");
    return ST_OK;
}

static bool is_none(struct hf_span s)
{
    return s.text == NULL || hf_span_is(s, "null") || hf_span_is(s, "\"\"");
}

/* Options of models that engine/text has no part for. */
static enum status check_options(const struct parts *p, enum hf_kind kind, struct reason *why)
{
    const bool word_piece = kind == HF_WORD_PIECE;
    const struct {
        const char *name;
        bool fits;
    } options[] = {
        {"dropout",
         is_none(p->dropout) || hf_span_is(p->dropout, "0.0") || hf_span_is(p->dropout, "0")},
        {"continuing_subword_prefix",
         word_piece ? hf_span_is(p->word_prefix, "\"##\"") : is_none(p->word_prefix)},
        {"end_of_word_suffix", is_none(p->word_suffix)},
        {"ignore_merges", kind == HF_BYTE_BPE || !hf_span_is(p->ignore_merges, "true")},
        {"max_input_chars_per_word",
         !word_piece || p->word_max.text == NULL || hf_span_is(p->word_max, "100")},
    };

    for (size_t i = 0; i < COUNT_OF(options); i++)
        if (!options[i].fits)
            return fail_param(why, ST_UNSUPPORTED, options[i].name,
                              "tokenizer.json: the model's %s is not supported", options[i].name);
    return ST_OK;
}

/* The token that stands for what the vocabulary can't spell; -1: none. */
static enum status find_unknown(struct parts *p, struct hf_vocab *v, int64_t *id,
                                struct reason *why)
{
    struct hf_span raw, text;
    struct hf_json j;
    uint64_t n;

    *id = -1;
    if (!is_none(p->unk_id)) {
        hf_json_init(&j, p->unk_id.text, p->unk_id.len);
        if (!hf_json_u64(&j, &n) || n >= v->n || v->tokens[n].text.text == NULL)
            return fail_param(why, ST_CORRUPT, "unk_id", "tokenizer.json: unk_id names no token");
        *id = (int64_t)n;
        return ST_OK;
    }
    if (is_none(p->unk_token))
        return ST_OK;
    hf_json_init(&j, p->unk_token.text, p->unk_token.len);
    if (!hf_json_string(&j, &raw) || !hf_json_text(&v->arena, raw, &text))
        return fail_param(why, ST_CORRUPT, "unk_token", "tokenizer.json: unk_token is no text");
    *id = hf_vocab_find(v, text);
    if (*id == -1)
        return fail_param(why, ST_CORRUPT, "unk_token",
                          "tokenizer.json: the vocabulary lacks the unk_token");
    return ST_OK;
}

/* A byte-level vocabulary spells everything: its unk_token, where it names one, is another token's
 * second role. */
static enum status put_unknown(struct parts *p, struct hf_vocab *v, enum hf_kind kind,
                               struct hf_meta *m, struct reason *why)
{
    int64_t id = -1;
    enum status s = find_unknown(p, v, &id, why);

    if (s != ST_OK || id == -1)
        return s;
    if (kind != HF_BYTE_BPE)
        v->tokens[id].type = HF_TOKEN_UNKNOWN;
    hf_meta_u32(m, "tokenizer.ggml.unknown_token_id", (uint32_t)id);
    return ST_OK;
}

static enum status fill_vocab(struct parts *p, const struct hf_pipeline *line, struct hf_vocab *v,
                              struct hf_meta *m, struct reason *why)
{
    const bool bytes = hf_span_is(p->byte_fallback, "true");
    enum status s = hf_vocab_read(v, p->vocab, line->kind, why);

    if (s == ST_OK && bytes && !hf_vocab_mark_bytes(v))
        s = fail_param(why, ST_UNSUPPORTED, "byte_fallback",
                       "tokenizer.json: byte_fallback without a token <0xNN> for each byte");
    if (s == ST_OK)
        s = hf_vocab_read_added(v, p->added, line, why);
    return s == ST_OK ? put_unknown(p, v, line->kind, m, why) : s;
}

/* Value of a base64 digit; -1: none. */
static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes base64 (RFC 4648, padded) to the end of *out; false: it is none. */
static bool decode_base64(const char *s, size_t len, struct buf *out)
{
    size_t digits = len;
    uint32_t bits = 0;

    while (digits > 0 && len - digits < 2 && s[digits - 1] == '=')
        digits--;
    if (len % 4 != 0 || digits % 4 == 1)
        return false;
    for (size_t i = 0; i < digits; i++) {
        int v = base64_value(s[i]);

        if (v == -1)
            return false;
        bits = bits << 6 | (uint32_t)v;
        if (i % 4 > 0)
            buf_put_u8(out, (uint8_t)(bits >> (6 - 2 * (i % 4))));
    }
    return true;
}

static enum status put_charsmap(const struct hf_pipeline *p, struct hf_meta *m, struct reason *why)
{
    size_t where, start;

    if (p->charsmap == NULL || json_string_length(p->charsmap) == 0)
        return ST_OK;
    where = hf_meta_array(m, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, 0);
    start = m->kv.len;
    if (!decode_base64(json_string_value(p->charsmap), json_string_length(p->charsmap), &m->kv))
        return fail_param(why, ST_CORRUPT, "precompiled_charsmap",
                          "tokenizer.json: precompiled_charsmap is no base64");
    hf_meta_set_length(m, where, m->kv.len - start);
    return ST_OK;
}

static void put_model(const struct hf_pipeline *p, struct hf_meta *m)
{
    static const char *const names[] = {[HF_BYTE_BPE] = "gpt2",
                                        [HF_SPACE_BPE] = "llama",
                                        [HF_UNIGRAM] = "t5",
                                        [HF_WORD_PIECE] = "bert"};

    hf_meta_string(m, "tokenizer.ggml.model", names[p->kind], strlen(names[p->kind]));
    if (p->pre != NULL)
        hf_meta_string(m, "tokenizer.ggml.pre", p->pre, strlen(p->pre));
    if (p->kind != HF_SPACE_BPE && p->kind != HF_UNIGRAM)
        return;
    hf_meta_bool(m, "tokenizer.ggml.add_space_prefix", p->adds_space);
    hf_meta_bool(m, "tokenizer.ggml.remove_extra_whitespaces", p->collapses_spaces);
    if (p->adds_space_first_only)
        hf_meta_bool(m, "sluice.space_prefix.first_only", true);
    if (p->adds_space_to_words)
        hf_meta_bool(m, "sluice.space_prefix.unless_space", true);
}

static enum status put_all(const struct hf_tokenizer_files *f, struct parts *p,
                           const struct hf_pipeline *line, struct hf_vocab *v, struct hf_meta *m,
                           struct reason *why)
{
    enum status s = fill_vocab(p, line, v, m, why);

    if (s != ST_OK)
        return s;
    put_model(line, m);
    hf_vocab_put(v, line->kind, m);
    if (line->kind == HF_BYTE_BPE || line->kind == HF_SPACE_BPE)
        s = hf_merges_put(&v->arena, p->merges, m, why);
    if (s == ST_OK)
        s = put_charsmap(line, m, why);
    return s == ST_OK ? hf_special_put(f, v, line, m, why) : s;
}

static enum status put_tokenizer(const struct hf_tokenizer_files *f, uint32_t n_vocab,
                                 struct hf_meta *m, struct reason *why)
{
    struct parts p = {.model = {NULL, 0}};
    struct hf_pipeline line = {0};
    struct hf_vocab v = {.n = 0};
    enum hf_kind kind = HF_BYTE_BPE;
    enum status s = split(f->tokenizer, &p, why);

    if (s == ST_OK)
        s = find_kind(&p, &kind, why);
    if (s == ST_OK)
        s = check_options(&p, kind, why);
    if (s == ST_OK)
        s = hf_pipeline_read(&line, kind, hf_span_is(p.ignore_merges, "true"), &p.line, why);
    if (s == ST_OK)
        s = hf_vocab_init(&v, n_vocab, why);
    if (s == ST_OK)
        s = put_all(f, &p, &line, &v, m, why);
    hf_vocab_dispose(&v);
    hf_pipeline_dispose(&line);
    return s;
}

enum status hf_tokenizer_put(const struct hf_tokenizer_files *f, uint32_t n_vocab,
                             struct hf_meta *m, struct reason *why)
{
    struct arena a;
    enum status s = ST_OK;

    if (f->tokenizer.text != NULL)
        s = put_tokenizer(f, n_vocab, m, why);
    if (s != ST_OK)
        return s;
    arena_init(&a, 0);
    s = hf_templates_put(f, &a, m, why);
    arena_dispose(&a);
    return s;
}
