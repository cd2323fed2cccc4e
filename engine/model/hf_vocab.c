#include "engine/model/hf_vocab.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/size.h"

/* U+2581, by which SentencePiece writes a space and GGUF the beginning of a WordPiece word. */
#define SPACE       "\xE2\x96\x81"
#define SPACE_BYTES 3
/* Merges have two sides. */
#define MERGE_SIDES 2

static const char file_name[] = "tokenizer.json";

enum status hf_vocab_init(struct hf_vocab *v, uint32_t n, struct reason *why)
{
    size_t slots = 8;

    *v = (struct hf_vocab){.n = n};
    arena_init(&v->arena, 0);
    while (slots < 2 * (size_t)n)
        slots *= 2;
    v->tokens = arena_array(&v->arena, n, sizeof *v->tokens);
    v->slots = arena_array(&v->arena, slots, sizeof *v->slots);
    v->mask = slots - 1;
    if (v->tokens != NULL && v->slots != NULL)
        return ST_OK;
    hf_vocab_dispose(v);
    return fail(why, ST_NO_MEMORY, "out of memory for %u tokens", n);
}

void hf_vocab_dispose(struct hf_vocab *v)
{
    arena_dispose(&v->arena);
}

/* The slot that holds the text, or the free one where it belongs. */
static size_t find_slot(const struct hf_vocab *v, struct hf_span text)
{
    size_t i = (size_t)XXH3_64bits(text.text, text.len) & v->mask;

    while (v->slots[i] != 0) {
        struct hf_span s = v->tokens[v->slots[i] - 1].text;

        if (s.len == text.len && memcmp(s.text, text.text, s.len) == 0)
            break;
        i = (i + 1) & v->mask;
    }
    return i;
}

int64_t hf_vocab_find(const struct hf_vocab *v, struct hf_span text)
{
    return (int64_t)v->slots[find_slot(v, text)] - 1;
}

static enum status set_token(struct hf_vocab *v, uint64_t id, struct hf_span text,
                             enum hf_token_type type, struct reason *why)
{
    size_t slot = find_slot(v, text);

    if (id >= v->n)
        return fail(why, ST_CORRUPT, "%s: token id %llu, but an embedding of %u rows", file_name,
                    (unsigned long long)id, v->n);
    if (v->tokens[id].text.text != NULL)
        return fail(why, ST_CORRUPT, "%s: two tokens have the id %llu", file_name,
                    (unsigned long long)id);
    if (v->slots[slot] != 0)
        return fail(why, ST_CORRUPT, "%s: tokens %u and %llu are the same text", file_name,
                    v->slots[slot] - 1, (unsigned long long)id);
    v->tokens[id] = (struct hf_token){.text = text, .type = type};
    v->slots[slot] = (uint32_t)id + 1;
    return ST_OK;
}

static enum status fail_text(struct reason *why)
{
    return fail(why, ST_CORRUPT,
                "%s: a token has half a surrogate pair or a NUL, or is too large for memory",
                file_name);
}

/* {"text": id, ...} */
static enum status read_ids(struct hf_vocab *v, struct hf_json *j, struct reason *why)
{
    struct hf_span raw = {0}, text;
    uint64_t id = 0;
    enum status s = ST_OK;

    if (!hf_json_enter_object(j))
        return hf_json_fail(j, "tokenizer.json's vocab", why);
    while (s == ST_OK && hf_json_member(j, &raw) && hf_json_u64(j, &id)) {
        if (!hf_json_text(&v->arena, raw, &text))
            return fail_text(why);
        s = set_token(v, id, text, HF_TOKEN_NORMAL, why);
    }
    return s;
}

/* [["text", score], ...]: the index is the id. */
static enum status read_scores(struct hf_vocab *v, struct hf_json *j, struct reason *why)
{
    struct hf_span raw = {0}, text;
    double score = 0;
    uint32_t id = 0;
    enum status s = ST_OK;

    if (!hf_json_enter_array(j))
        return hf_json_fail(j, "tokenizer.json's vocab", why);
    while (s == ST_OK && hf_json_element(j)) {
        if (!hf_json_enter_array(j) || !hf_json_element(j) || !hf_json_string(j, &raw) ||
            !hf_json_element(j) || !hf_json_number(j, &score) || hf_json_element(j) ||
            !(fabs(score) <= (double)FLT_MAX))
            return hf_json_fail(j, "tokenizer.json's vocab", why);
        if (!hf_json_text(&v->arena, raw, &text))
            return fail_text(why);
        s = set_token(v, id, text, HF_TOKEN_NORMAL, why);
        if (s == ST_OK)
            v->tokens[id++].score = (float)score;
    }
    return s;
}

enum status hf_vocab_read(struct hf_vocab *v, struct hf_span vocab, enum hf_kind kind,
                          struct reason *why)
{
    struct hf_json j;
    enum status s;

    if (vocab.text == NULL)
        return fail(why, ST_CORRUPT, "%s: the model has no vocab", file_name);
    hf_json_init(&j, vocab.text, vocab.len);
    s = kind == HF_UNIGRAM ? read_scores(v, &j, why) : read_ids(v, &j, why);
    if (s == ST_OK && !hf_json_end(&j))
        return hf_json_fail(&j, "tokenizer.json's vocab", why);
    return s;
}

bool hf_vocab_mark_bytes(struct hf_vocab *v)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        int64_t id;

        snprintf(name, sizeof name, "<0x%02X>", byte);
        id = hf_vocab_find(v, (struct hf_span){name, 6});
        if (id == -1)
            return false;
        v->tokens[id].type = HF_TOKEN_BYTE;
    }
    return true;
}

/* One of added_tokens. */
struct added {
    uint64_t id;
    struct hf_span content;
    bool has_id, special, single_word, lstrip, rstrip, normalized;
};

static bool read_added_member(struct hf_json *j, struct hf_span key, struct added *a)
{
    const struct {
        const char *key;
        bool *out;
    } flags[] = {
        {"special", &a->special}, {"single_word", &a->single_word}, {"lstrip", &a->lstrip},
        {"rstrip", &a->rstrip},   {"normalized", &a->normalized},
    };

    if (hf_span_is(key, "id")) {
        a->has_id = true;
        return hf_json_u64(j, &a->id);
    }
    if (hf_span_is(key, "content"))
        return hf_json_string(j, &a->content);
    for (size_t i = 0; i < COUNT_OF(flags); i++)
        if (hf_span_is(key, flags[i].key))
            return hf_json_bool(j, flags[i].out);
    return hf_json_skip(j, NULL);
}

static enum status check_flags(const struct added *a, const struct hf_pipeline *p,
                               struct reason *why)
{
    const struct {
        const char *name;
        bool is_set;
    } flags[] = {
        {"single_word", a->single_word},
        {"normalized", a->normalized && !a->special && p->normalizes},
    };

    for (size_t i = 0; i < COUNT_OF(flags); i++)
        if (flags[i].is_set)
            return fail_param(why, ST_UNSUPPORTED, flags[i].name,
                              "%s: added token %llu has %s, which is not supported", file_name,
                              (unsigned long long)a->id, flags[i].name);
    return ST_OK;
}

/* An added token may be one of the vocabulary's, by id and text. */
static enum status add_token(struct hf_vocab *v, const struct added *a, struct reason *why)
{
    const enum hf_token_type type = a->special ? HF_TOKEN_CONTROL : HF_TOKEN_USER_DEFINED;
    struct hf_span text;
    enum status s = ST_OK;

    if (!hf_json_text(&v->arena, a->content, &text) || text.len == 0)
        return fail_text(why);
    if (a->id >= v->n)
        return ST_OK;
    if (hf_vocab_find(v, text) != (int64_t)a->id)
        s = set_token(v, a->id, text, type, why);
    if (s != ST_OK)
        return s;
    v->tokens[a->id].type = type;
    v->tokens[a->id].lstrip = a->lstrip;
    v->tokens[a->id].rstrip = a->rstrip;
    return ST_OK;
}

enum status hf_vocab_read_added(struct hf_vocab *v, struct hf_span added,
                                const struct hf_pipeline *p, struct reason *why)
{
    struct hf_span key = {0};
    struct hf_json j;
    enum status s = ST_OK;

    if (added.text == NULL || hf_span_is(added, "null"))
        return ST_OK;
    hf_json_init(&j, added.text, added.len);
    if (!hf_json_enter_array(&j))
        return hf_json_fail(&j, "tokenizer.json's added_tokens", why);
    while (s == ST_OK && hf_json_element(&j)) {
        struct added a = {0};

        if (hf_json_enter_object(&j))
            while (hf_json_member(&j, &key) && read_added_member(&j, key, &a))
                ;
        if (j.failed || !a.has_id || a.content.text == NULL)
            return hf_json_fail(&j, "tokenizer.json's added_tokens", why);
        s = check_flags(&a, p, why);
        if (s == ST_OK)
            s = add_token(v, &a, why);
    }
    return s == ST_OK && j.failed ? hf_json_fail(&j, "tokenizer.json's added_tokens", why) : s;
}

/* WordPiece marks what goes on within a word, GGUF what begins one. */
static void put_text(const struct hf_token *t, enum hf_kind kind, struct hf_meta *m)
{
    struct hf_span s = t->text;

    if (kind != HF_WORD_PIECE || t->type != HF_TOKEN_NORMAL) {
        hf_meta_element(m, s.text, s.len);
    } else if (s.len > 2 && memcmp(s.text, "##", 2) == 0) {
        hf_meta_element(m, s.text + 2, s.len - 2);
    } else {
        buf_put_u64(&m->kv, s.len + SPACE_BYTES);
        buf_puts(&m->kv, SPACE);
        buf_append(&m->kv, s.text, s.len);
    }
}

static void put_texts(const struct hf_vocab *v, enum hf_kind kind, struct hf_meta *m)
{
    (void)hf_meta_array(m, "tokenizer.ggml.tokens", GGUF_STRING, v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        char pad[24];

        if (v->tokens[i].text.text != NULL) {
            put_text(&v->tokens[i], kind, m);
            continue;
        }
        snprintf(pad, sizeof pad, "[PAD%u]", i);
        hf_meta_element(m, pad, strlen(pad));
    }
}

static void put_strips(const struct hf_vocab *v, const char *key, bool right, struct hf_meta *m)
{
    size_t where = hf_meta_array(m, key, GGUF_I32, 0), n = 0;

    for (uint32_t i = 0; i < v->n; i++) {
        if (!(right ? v->tokens[i].rstrip : v->tokens[i].lstrip))
            continue;
        buf_put_u32(&m->kv, i);
        n++;
    }
    hf_meta_set_length(m, where, n);
}

void hf_vocab_put(const struct hf_vocab *v, enum hf_kind kind, struct hf_meta *m)
{
    put_texts(v, kind, m);
    (void)hf_meta_array(m, "tokenizer.ggml.token_type", GGUF_I32, v->n);
    for (uint32_t i = 0; i < v->n; i++)
        buf_put_u32(&m->kv, v->tokens[i].text.text != NULL ? v->tokens[i].type : HF_TOKEN_UNUSED);
    put_strips(v, "sluice.token_lstrip", false, m);
    put_strips(v, "sluice.token_rstrip", true, m);
    if (kind != HF_UNIGRAM)
        return;
    (void)hf_meta_array(m, "tokenizer.ggml.scores", GGUF_F32, v->n);
    for (uint32_t i = 0; i < v->n; i++)
        hf_meta_f32_element(m, v->tokens[i].score);
}

/* GGUF puts a space between the sides: neither may have one. */
static enum status put_merge(struct arena *a, const struct hf_span raw[MERGE_SIDES],
                             struct hf_meta *m, struct reason *why)
{
    struct hf_span sides[MERGE_SIDES];

    for (int i = 0; i < MERGE_SIDES; i++)
        if (!hf_json_text(a, raw[i], &sides[i]) || sides[i].len == 0 ||
            memchr(sides[i].text, ' ', sides[i].len) != NULL)
            return fail(why, ST_CORRUPT, "%s: a merge is not two tokens without spaces", file_name);
    buf_put_u64(&m->kv, sides[0].len + 1 + sides[1].len);
    buf_append(&m->kv, sides[0].text, sides[0].len);
    buf_putc(&m->kv, ' ');
    buf_append(&m->kv, sides[1].text, sides[1].len);
    return ST_OK;
}

/* "left right" or ["left", "right"]. */
static bool read_merge(struct hf_json *j, struct hf_span sides[MERGE_SIDES])
{
    const char *space;

    if (hf_json_peek(j) == '[')
        return hf_json_enter_array(j) && hf_json_element(j) && hf_json_string(j, &sides[0]) &&
               hf_json_element(j) && hf_json_string(j, &sides[1]) && !hf_json_element(j) &&
               !j->failed;
    if (!hf_json_string(j, &sides[0]))
        return false;
    space = memchr(sides[0].text, ' ', sides[0].len);
    if (space == NULL)
        return false;
    sides[1] = (struct hf_span){space + 1, sides[0].len - (size_t)(space + 1 - sides[0].text)};
    sides[0].len = (size_t)(space - sides[0].text);
    return true;
}

enum status hf_merges_put(struct arena *a, struct hf_span merges, struct hf_meta *m,
                          struct reason *why)
{
    struct hf_span sides[MERGE_SIDES] = {{0}};
    size_t n = 0, where = hf_meta_array(m, "tokenizer.ggml.merges", GGUF_STRING, 0);
    struct hf_json j;
    enum status s = ST_OK;

    hf_json_init(&j, merges.text != NULL ? merges.text : "", merges.len);
    if (!hf_json_enter_array(&j))
        return hf_json_fail(&j, "tokenizer.json's merges", why);
    for (; s == ST_OK && hf_json_element(&j); n++) {
        if (!read_merge(&j, sides))
            return hf_json_fail(&j, "tokenizer.json's merges", why);
        s = put_merge(a, sides, m, why);
    }
    if (s == ST_OK && j.failed)
        return hf_json_fail(&j, "tokenizer.json's merges", why);
    hf_meta_set_length(m, where, n);
    return s;
}
