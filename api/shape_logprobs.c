#include "api/shape_logprobs.h"

#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */
/* JSON has no infinity: what OpenAI writes for a token that can't come. */
#define LOGPROB_MIN (-9999.0)
/* Most tokens are shorter; longer ones are asked for again. */
#define TOKEN_BYTES 64

void shape_logprobs_init(struct shape_logprobs *l, enum endpoint endpoint)
{
    l->endpoint = endpoint;
    for (int i = 0; i < LOGPROB_LISTS; i++)
        buf_init(&l->lists[i]);
    buf_init(&l->key);
}

void shape_logprobs_dispose(struct shape_logprobs *l)
{
    for (int i = 0; i < LOGPROB_LISTS; i++)
        buf_dispose(&l->lists[i]);
    buf_dispose(&l->key);
}

void shape_logprobs_clear(struct shape_logprobs *l)
{
    for (int i = 0; i < LOGPROB_LISTS; i++)
        buf_clear(&l->lists[i]);
}

size_t shape_logprobs_bytes(const struct shape_logprobs *l)
{
    size_t n = 0;

    for (int i = 0; i < LOGPROB_LISTS; i++)
        n += l->lists[i].len;
    return n;
}

bool shape_logprobs_failed(const struct shape_logprobs *l)
{
    bool failed = l->key.failed;

    for (int i = 0; i < LOGPROB_LISTS; i++)
        failed = failed || l->lists[i].failed;
    return failed;
}

void token_source_read(const struct token_source *from, int32_t id, struct buf *out)
{
    size_t room = TOKEN_BYTES, len;

    buf_clear(out);
    while (buf_reserve(out, room)) {
        len = from->bytes(from->revision, id, out->data, room);
        if (len <= room) {
            out->len = len;
            return;
        }
        room = len;
    }
}

/* ---- pieces ---- */

static void put_value(struct buf *b, float logprob)
{
    double v = (double)logprob;

    buf_printf(b, "%.9g", v > LOGPROB_MIN ? v : LOGPROB_MIN);
}

static void put_comma(struct buf *b)
{
    if (b->len > 0)
        buf_putc(b, ',');
}

/* A JSON string in which what is no UTF-8 became U+FFFD, byte by byte. */
static void put_replaced(struct buf *b, const struct buf *bytes)
{
    size_t start = 0, at = 0;

    buf_putc(b, '"');
    while (at < bytes->len) {
        int n = utf8_decode(bytes->data + at, bytes->len - at, NULL);

        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        json_put_chars(b, bytes->data + start, at - start);
        buf_puts(b, REPLACEMENT);
        start = ++at;
    }
    json_put_chars(b, bytes->data + start, at - start);
    buf_putc(b, '"');
}

/* As OpenAI's completions write it. */
static void put_escaped(struct buf *b, const struct buf *bytes)
{
    if (utf8_is_valid(bytes->data, bytes->len)) {
        json_put_string(b, bytes->data, bytes->len);
        return;
    }
    buf_puts(b, "\"bytes:");
    for (size_t i = 0; i < bytes->len; i++)
        buf_printf(b, "\\\\x%02x", (uint8_t)bytes->data[i]);
    buf_putc(b, '"');
}

/* ---- chat ---- */

/* Without the closing brace. */
static void put_chat_token(struct buf *b, const struct token_source *from, int32_t id,
                           float logprob, struct buf *scratch)
{
    token_source_read(from, id, scratch);
    buf_puts(b, "{\"token\":");
    put_replaced(b, scratch);
    buf_puts(b, ",\"logprob\":");
    put_value(b, logprob);
    buf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < scratch->len; i++) {
        if (i > 0)
            buf_putc(b, ',');
        json_put_int(b, (uint8_t)scratch->data[i]);
    }
    buf_putc(b, ']');
}

static void add_chat(struct buf *b, const struct token_source *from, const struct token_sample *t,
                     struct buf *scratch)
{
    put_comma(b);
    put_chat_token(b, from, t->id, t->logprob, scratch);
    buf_puts(b, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < t->n_tops; i++) {
        if (i > 0)
            buf_putc(b, ',');
        put_chat_token(b, from, t->tops[i].id, t->tops[i].logprob, scratch);
        buf_putc(b, '}');
    }
    buf_puts(b, "]}");
}

/* ---- completions ---- */

static void put_token(struct shape_logprobs *l, const struct token_source *from, int32_t id,
                      int64_t offset, struct buf *scratch)
{
    token_source_read(from, id, scratch);
    put_comma(&l->lists[LOGPROB_TOKENS]);
    put_escaped(&l->lists[LOGPROB_TOKENS], scratch);
    put_comma(&l->lists[LOGPROB_OFFSETS]);
    json_put_int(&l->lists[LOGPROB_OFFSETS], offset);
}

/* The chosen one is often among the tops, and two ids may have the same bytes; a JSON object has a
 * key once. The first stays, which is the more probable. True: `id` has a double
 * among the first n tops; false: *key has its bytes. */
static bool is_repeated(struct buf *key, const struct token_source *from,
                        const struct token_sample *t, uint32_t n, int32_t id, struct buf *scratch)
{
    for (uint32_t k = 0; k < n; k++)
        if (t->tops[k].id == id)
            return true;
    token_source_read(from, id, key);
    for (uint32_t k = 0; k < n; k++) {
        token_source_read(from, t->tops[k].id, scratch);
        if (scratch->len == key->len && memcmp(scratch->data, key->data, key->len) == 0)
            return true;
    }
    return false;
}

/* The most probable ones, and the chosen one where it is none of them: up to one more. */
static void put_top_map(struct shape_logprobs *l, const struct token_source *from,
                        const struct token_sample *t, struct buf *scratch)
{
    struct buf *b = &l->lists[LOGPROB_TOPS];
    bool is_first = true;

    put_comma(b);
    buf_putc(b, '{');
    for (uint32_t i = 0; i <= t->n_tops; i++) {
        const int32_t id = i < t->n_tops ? t->tops[i].id : t->id;

        if (is_repeated(&l->key, from, t, i, id, scratch))
            continue;
        if (!is_first)
            buf_putc(b, ',');
        is_first = false;
        put_escaped(b, &l->key);
        buf_putc(b, ':');
        put_value(b, i < t->n_tops ? t->tops[i].logprob : t->logprob);
    }
    buf_putc(b, '}');
}

void shape_logprobs_add(struct shape_logprobs *l, const struct token_source *from,
                        const struct token_sample *t, int64_t offset, struct buf *scratch)
{
    if (l->endpoint == ENDPOINT_CHAT) {
        add_chat(&l->lists[0], from, t, scratch);
        return;
    }
    put_token(l, from, t->id, offset, scratch);
    put_comma(&l->lists[LOGPROB_VALUES]);
    put_value(&l->lists[LOGPROB_VALUES], t->logprob);
    put_top_map(l, from, t, scratch);
}

void shape_logprobs_add_first(struct shape_logprobs *l, const struct token_source *from, int32_t id,
                              int64_t offset, struct buf *scratch)
{
    put_token(l, from, id, offset, scratch);
    put_comma(&l->lists[LOGPROB_VALUES]);
    buf_puts(&l->lists[LOGPROB_VALUES], "null");
    put_comma(&l->lists[LOGPROB_TOPS]);
    buf_puts(&l->lists[LOGPROB_TOPS], "null");
}

/* ---- the whole ---- */

static void put_list(struct buf *b, const struct shape_logprobs *prompt,
                     const struct shape_logprobs *own, enum logprob_list which)
{
    const struct buf *first = prompt != NULL ? &prompt->lists[which] : NULL;
    const struct buf *rest = &own->lists[which];

    buf_putc(b, '[');
    if (first != NULL)
        buf_append(b, first->data, first->len);
    if (first != NULL && first->len > 0 && rest->len > 0)
        buf_putc(b, ',');
    buf_append(b, rest->data, rest->len);
    buf_putc(b, ']');
}

void shape_logprobs_put(struct buf *b, const struct shape_logprobs *prompt,
                        const struct shape_logprobs *own)
{
    static const char *const names[LOGPROB_LISTS] = {"tokens", "token_logprobs", "top_logprobs",
                                                     "text_offset"};

    b->failed = b->failed || shape_logprobs_failed(own) ||
                (prompt != NULL && shape_logprobs_failed(prompt));
    if (own->endpoint == ENDPOINT_CHAT) {
        buf_puts(b, "{\"content\":");
        put_list(b, prompt, own, LOGPROB_TOKENS);
        buf_puts(b, ",\"refusal\":null}");
        return;
    }
    for (int i = 0; i < LOGPROB_LISTS; i++) {
        buf_printf(b, "%c\"%s\":", i == 0 ? '{' : ',', names[i]);
        put_list(b, prompt, own, (enum logprob_list)i);
    }
    buf_putc(b, '}');
}
