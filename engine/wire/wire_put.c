#include "engine/wire/wire.h"

#include <assert.h>
#include <string.h>

#include "engine/wire/wire_parts.h"

void wire_put_u32_at(struct buf *b, size_t at, uint32_t v)
{
    for (size_t i = 0; i < 4; i++)
        b->data[at + i] = (char)(uint8_t)(v >> (8 * i));
}

size_t wire_begin(struct buf *b, enum wire_type type)
{
    size_t start = b->len;

    buf_put_u32(b, 0);
    buf_put_u16(b, (uint16_t)type);
    return start;
}

void wire_end(struct buf *b, size_t start)
{
    size_t length = b->len - start - 4;

    if (b->failed)
        return;
    assert(length <= WIRE_FRAME_BYTES_MAX);
    wire_put_u32_at(b, start, (uint32_t)length);
}

static void put_text(struct buf *b, const char *s)
{
    size_t len = strlen(s);

    assert(len <= UINT8_MAX);
    buf_put_u8(b, (uint8_t)len);
    buf_append(b, s, len);
}

void wire_put_f32(struct buf *b, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    buf_put_u32(b, bits);
}

void wire_put_hello(struct buf *b, const struct wire_hello *v)
{
    size_t start = wire_begin(b, WIRE_HELLO);

    buf_put_u16(b, v->version_min);
    buf_put_u16(b, v->version_max);
    put_text(b, v->build);
    wire_end(b, start);
}

void wire_put_welcome(struct buf *b, const struct wire_welcome *v)
{
    size_t start = wire_begin(b, WIRE_WELCOME);

    buf_put_u16(b, v->version);
    put_text(b, v->build);
    put_text(b, v->revision);
    put_text(b, v->device);
    buf_put_u32(b, v->max_sequences);
    buf_put_u32(b, v->max_rows);
    buf_put_u32(b, v->max_context);
    buf_put_u32(b, v->n_pages);
    buf_put_u32(b, v->n_vocab);
    buf_put_u64(b, v->credit_bytes);
    buf_put_u32(b, v->pid);
    wire_end(b, start);
}

void wire_put_refused(struct buf *b, const struct wire_refused *v)
{
    size_t start = wire_begin(b, WIRE_REFUSED);

    buf_put_u16(b, v->status);
    put_text(b, v->text);
    wire_end(b, start);
}

void wire_put_cancel(struct buf *b, uint64_t job)
{
    size_t start = wire_begin(b, WIRE_CANCEL);

    buf_put_u64(b, job);
    wire_end(b, start);
}

void wire_put_final(struct buf *b, const struct wire_final *v)
{
    size_t start = wire_begin(b, WIRE_FINAL);

    buf_put_u64(b, v->job);
    buf_put_u16(b, v->status);
    buf_put_u8(b, v->finish);
    buf_put_u32(b, v->prompt_tokens);
    buf_put_u32(b, v->cached_tokens);
    buf_put_u32(b, v->output_tokens);
    buf_put_u32(b, v->queue_us);
    buf_put_u32(b, v->prefill_us);
    buf_put_u32(b, v->decode_us);
    buf_put_u32(b, v->retry_after_ms);
    wire_end(b, start);
}

void wire_put_stats(struct buf *b, const struct wire_stats *v)
{
    size_t start = wire_begin(b, WIRE_STATS);

    buf_put_u32(b, v->running);
    buf_put_u32(b, v->waiting);
    buf_put_u32(b, v->pages_used);
    buf_put_u32(b, v->pages_total);
    buf_put_u32(b, v->rows_max);
    buf_put_u64(b, v->steps);
    buf_put_u64(b, v->prompt_tokens);
    buf_put_u64(b, v->output_tokens);
    buf_put_u64(b, v->preemptions);
    buf_put_u64(b, v->prefix_query_tokens);
    buf_put_u64(b, v->prefix_hit_tokens);
    buf_put_u64(b, v->not_finite);
    buf_put_u64(b, (uint64_t)v->last_step_age_ms);
    wire_end(b, start);
}

void wire_put_credit(struct buf *b, uint64_t bytes)
{
    size_t start = wire_begin(b, WIRE_CREDIT);

    buf_put_u64(b, bytes);
    wire_end(b, start);
}
