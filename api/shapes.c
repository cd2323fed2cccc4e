#include "api/shapes.h"

#include <ctype.h>
#include <openssl/sha.h>
#include <stdio.h>

#include "base/id.h"
#include "base/json.h"

#define FINGERPRINT_HASH_BYTES 6

/* "cpu avx2 fast 2 threads" as "cpu-avx2-fast": up to the first word that is a number. */
static void name_device(const struct engine_stats *s, char *out, size_t cap)
{
    size_t n = 0;

    for (const char *p = s->device; *p != '\0' && n + 1 < cap; p++) {
        if (*p == ' ' && isdigit((unsigned char)p[1]))
            break;
        out[n++] = isalnum((unsigned char)*p) ? *p : '-';
    }
    out[n] = '\0';
}

void shape_fingerprint(const struct engine_stats *s, const char *revision,
                       char out[FINGERPRINT_BYTES])
{
    char device[sizeof s->device], text[320], hex[2 * FINGERPRINT_HASH_BYTES + 1];
    uint8_t hash[SHA256_DIGEST_LENGTH];
    int len;

    name_device(s, device, sizeof device);
    len = snprintf(text, sizeof text, "%s\n%s\n%s", device, s->build, revision);
    SHA256((const uint8_t *)text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1, hash);
    hex_encode(hash, FINGERPRINT_HASH_BYTES, hex);
    snprintf(out, FINGERPRINT_BYTES, "fp_%s-%s", device, hex);
}

const char *shape_finish_name(enum engine_finish finish)
{
    static const char *const names[] = {
        [ENGINE_FINISH_NONE] = "",
        [ENGINE_FINISH_STOP] = "stop",
        [ENGINE_FINISH_LENGTH] = "length",
    };

    return names[finish];
}

static void put_head(struct buf *b, const struct shape *s, const char *object)
{
    buf_puts(b, "{\"id\":");
    json_put_cstr(b, s->id);
    buf_puts(b, ",\"object\":");
    json_put_cstr(b, object);
    buf_puts(b, ",\"created\":");
    json_put_int(b, s->created_s);
    buf_puts(b, ",\"model\":");
    json_put_cstr(b, s->model);
    buf_puts(b, ",\"system_fingerprint\":");
    json_put_cstr(b, s->fingerprint);
    buf_puts(b, ",\"choices\":[");
}

static void put_usage(struct buf *b, const struct engine_usage *u)
{
    buf_puts(b, ",\"usage\":{\"prompt_tokens\":");
    json_put_int(b, u->prompt_tokens);
    buf_puts(b, ",\"completion_tokens\":");
    json_put_int(b, u->output_tokens);
    buf_puts(b, ",\"total_tokens\":");
    json_put_int(b, (int64_t)u->prompt_tokens + u->output_tokens);
    buf_puts(b, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_put_int(b, u->cached_tokens);
    buf_puts(b, "},\"completion_tokens_details\":{\"reasoning_tokens\":0}}");
}

static void put_tier(struct buf *b, const struct shape *s)
{
    if (s->endpoint != ENDPOINT_CHAT || s->service_tier == NULL)
        return;
    buf_puts(b, ",\"service_tier\":");
    json_put_cstr(b, s->service_tier);
}

static void put_index(struct buf *b, uint32_t index)
{
    buf_puts(b, "{\"index\":");
    json_put_int(b, index);
}

static void put_text(struct buf *b, const struct shape_choice *c)
{
    buf_putc(b, '"');
    json_put_chars(b, c->echo, c->echo_len);
    json_put_chars(b, c->text, c->len);
    buf_putc(b, '"');
}

static void put_logprobs(struct buf *b, const struct shape_choice *c)
{
    buf_puts(b, ",\"logprobs\":");
    if (c->logprobs != NULL)
        shape_logprobs_put(b, c->prompt_logprobs, c->logprobs);
    else
        buf_puts(b, "null");
}

/* The choice's last members. */
static void put_finish(struct buf *b, enum engine_finish finish)
{
    buf_puts(b, ",\"finish_reason\":");
    if (finish == ENGINE_FINISH_NONE)
        buf_puts(b, "null");
    else
        json_put_cstr(b, shape_finish_name(finish));
    buf_putc(b, '}');
}

void shape_answer_begin(struct buf *b, const struct shape *s)
{
    put_head(b, s, s->endpoint == ENDPOINT_CHAT ? "chat.completion" : "text_completion");
}

void shape_answer_choice(struct buf *b, const struct shape *s, const struct shape_choice *c)
{
    const bool is_chat = s->endpoint == ENDPOINT_CHAT;

    if (c->index > 0)
        buf_putc(b, ',');
    put_index(b, c->index);
    buf_puts(b, is_chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":");
    put_text(b, c);
    if (is_chat)
        buf_puts(b, ",\"refusal\":null}");
    put_logprobs(b, c);
    put_finish(b, c->finish);
}

void shape_answer_end(struct buf *b, const struct shape *s, const struct engine_usage *usage)
{
    buf_putc(b, ']');
    put_tier(b, s);
    put_usage(b, usage);
    buf_putc(b, '}');
}

/* ---- chunks ---- */

static void put_chunk_head(struct buf *b, const struct shape *s)
{
    put_head(b, s, s->endpoint == ENDPOINT_CHAT ? "chat.completion.chunk" : "text_completion");
}

static void put_chunk_tail(struct buf *b, const struct shape *s)
{
    buf_putc(b, ']');
    put_tier(b, s);
    if (s->include_usage)
        buf_puts(b, ",\"usage\":null");
    buf_putc(b, '}');
}

void shape_first(struct buf *b, const struct shape *s, uint32_t index)
{
    put_chunk_head(b, s);
    put_index(b, index);
    buf_puts(b, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}"
                ",\"logprobs\":null");
    put_finish(b, ENGINE_FINISH_NONE);
    put_chunk_tail(b, s);
}

void shape_text(struct buf *b, const struct shape *s, const struct shape_choice *c)
{
    const bool is_chat = s->endpoint == ENDPOINT_CHAT;

    put_chunk_head(b, s);
    put_index(b, c->index);
    buf_puts(b, is_chat ? ",\"delta\":{\"content\":" : ",\"text\":");
    put_text(b, c);
    if (is_chat)
        buf_putc(b, '}');
    put_logprobs(b, c);
    put_finish(b, c->finish);
    put_chunk_tail(b, s);
}

void shape_finish(struct buf *b, const struct shape *s, uint32_t index, enum engine_finish finish)
{
    put_chunk_head(b, s);
    put_index(b, index);
    buf_puts(b, s->endpoint == ENDPOINT_CHAT ? ",\"delta\":{},\"logprobs\":null"
                                             : ",\"text\":\"\",\"logprobs\":null");
    put_finish(b, finish);
    put_chunk_tail(b, s);
}

void shape_usage(struct buf *b, const struct shape *s, const struct engine_usage *usage)
{
    put_chunk_head(b, s);
    buf_putc(b, ']');
    put_tier(b, s);
    put_usage(b, usage);
    buf_putc(b, '}');
}

void shape_model(struct buf *b, const struct engine_model *m, const char *name)
{
    const struct engine_revision *r = engine_revision_get(m);

    buf_puts(b, "{\"id\":");
    json_put_cstr(b, name);
    buf_puts(b, ",\"object\":\"model\",\"created\":");
    json_put_int(b, r != NULL ? r->created_s : 0);
    engine_revision_put(r);
    buf_puts(b, ",\"owned_by\":\"sluice\"}");
}

void shape_models(struct buf *b, const struct engine *e)
{
    const struct engine_model *m;

    buf_puts(b, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; (m = engine_model_at(e, i)) != NULL; i++) {
        if (i > 0)
            buf_putc(b, ',');
        shape_model(b, m, m->id);
        for (size_t k = 0; k < m->n_aliases; k++) {
            buf_putc(b, ',');
            shape_model(b, m, m->aliases[k]);
        }
    }
    buf_puts(b, "]}");
}
