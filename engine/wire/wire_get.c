#include "engine/wire/wire.h"

#include <string.h>

#include "engine/wire/wire_parts.h"

enum wire_scan wire_scan(const void *data, size_t len, struct wire_frame *out, size_t *frame_bytes)
{
    struct reader r;
    uint32_t length;

    reader_init(&r, data, len);
    length = reader_u32(&r);
    if (r.failed)
        return WIRE_SCAN_MORE;
    if (length < WIRE_HEADER_BYTES - 4 || length > WIRE_FRAME_BYTES_MAX)
        return WIRE_SCAN_CORRUPT;
    if (reader_left(&r) < length)
        return WIRE_SCAN_MORE;
    out->type = reader_u16(&r);
    out->len = length - (WIRE_HEADER_BYTES - 4);
    out->body = reader_bytes(&r, out->len);
    *frame_bytes = 4 + (size_t)length;
    return WIRE_SCAN_FRAME;
}

/* Printable ASCII, NUL-terminated into out[cap]: these texts go to logs and headers. */
static void get_text(struct reader *r, char *out, size_t cap)
{
    size_t len = reader_u8(r);
    const char *s = reader_bytes(r, len);

    if (s == NULL || len >= cap) {
        r->failed = true;
        return;
    }
    for (size_t i = 0; i < len; i++)
        if (s[i] < 0x20 || s[i] > 0x7E)
            r->failed = true;
    memcpy(out, s, len);
    out[len] = '\0';
}

enum status wire_get_hello(const struct wire_frame *f, struct wire_hello *out)
{
    struct reader r = wire_body_of(f);

    out->version_min = reader_u16(&r);
    out->version_max = reader_u16(&r);
    get_text(&r, out->build, sizeof out->build);
    if (out->version_min > out->version_max)
        return ST_CORRUPT;
    return wire_done(&r);
}

enum status wire_get_welcome(const struct wire_frame *f, struct wire_welcome *out)
{
    struct reader r = wire_body_of(f);

    out->version = reader_u16(&r);
    get_text(&r, out->build, sizeof out->build);
    get_text(&r, out->revision, sizeof out->revision);
    get_text(&r, out->device, sizeof out->device);
    out->max_sequences = reader_u32(&r);
    out->max_rows = reader_u32(&r);
    out->max_context = reader_u32(&r);
    out->n_pages = reader_u32(&r);
    out->n_vocab = reader_u32(&r);
    out->credit_bytes = reader_u64(&r);
    out->pid = reader_u32(&r);
    if (out->max_sequences == 0 || out->max_context == 0 || out->credit_bytes == 0)
        return ST_CORRUPT;
    return wire_done(&r);
}

enum status wire_get_refused(const struct wire_frame *f, struct wire_refused *out)
{
    struct reader r = wire_body_of(f);

    out->status = reader_u16(&r);
    get_text(&r, out->text, sizeof out->text);
    if (out->status == ST_OK || out->status >= STATUS_COUNT)
        return ST_CORRUPT;
    return wire_done(&r);
}

enum status wire_get_cancel(const struct wire_frame *f, uint64_t *job)
{
    struct reader r = wire_body_of(f);

    *job = reader_u64(&r);
    return wire_done(&r);
}

enum status wire_get_final(const struct wire_frame *f, struct wire_final *out)
{
    struct reader r = wire_body_of(f);

    out->job = reader_u64(&r);
    out->status = reader_u16(&r);
    out->finish = reader_u8(&r);
    out->prompt_tokens = reader_u32(&r);
    out->cached_tokens = reader_u32(&r);
    out->output_tokens = reader_u32(&r);
    out->queue_us = reader_u32(&r);
    out->prefill_us = reader_u32(&r);
    out->decode_us = reader_u32(&r);
    out->retry_after_ms = reader_u32(&r);
    if (out->status >= STATUS_COUNT || out->finish > ENGINE_FINISH_LENGTH ||
        out->cached_tokens > out->prompt_tokens ||
        (out->status == ST_OK) != (out->finish != ENGINE_FINISH_NONE) ||
        (out->retry_after_ms != 0 && out->status != ST_OVERLOADED && out->status != ST_TIMEOUT))
        return ST_CORRUPT;
    return wire_done(&r);
}

enum status wire_get_stats(const struct wire_frame *f, struct wire_stats *out)
{
    struct reader r = wire_body_of(f);

    out->running = reader_u32(&r);
    out->waiting = reader_u32(&r);
    out->pages_used = reader_u32(&r);
    out->pages_total = reader_u32(&r);
    out->rows_max = reader_u32(&r);
    out->steps = reader_u64(&r);
    out->prompt_tokens = reader_u64(&r);
    out->output_tokens = reader_u64(&r);
    out->preemptions = reader_u64(&r);
    out->prefix_query_tokens = reader_u64(&r);
    out->prefix_hit_tokens = reader_u64(&r);
    out->not_finite = reader_u64(&r);
    out->last_step_age_ms = (int64_t)reader_u64(&r);
    if (out->pages_used > out->pages_total || out->last_step_age_ms < -1)
        return ST_CORRUPT;
    return wire_done(&r);
}

enum status wire_get_credit(const struct wire_frame *f, uint64_t *bytes)
{
    struct reader r = wire_body_of(f);

    *bytes = reader_u64(&r);
    return wire_done(&r);
}
