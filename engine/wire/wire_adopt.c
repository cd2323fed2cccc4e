/* Frames by which a gateway adopts an engine, and a supervisor watches one (version 3) and replaces
 * or wakes it (version 4). */
#include <assert.h>
#include <string.h>

#include "engine/wire/wire.h"
#include "engine/wire/wire_parts.h"

void wire_put_bare(struct buf *b, enum wire_type type)
{
    wire_end(b, wire_begin(b, type));
}

static void put_requests(struct buf *b, enum wire_type type, const struct wire_requests *v)
{
    size_t start = wire_begin(b, type);

    assert(v->n > 0 && v->n <= WIRE_CLAIM_MAX);
    buf_put_u32(b, v->n);
    buf_append(b, v->ids, v->n * sizeof v->ids[0]);
    wire_end(b, start);
}

void wire_put_claim(struct buf *b, const struct wire_requests *v)
{
    put_requests(b, WIRE_CLAIM, v);
}

void wire_put_release(struct buf *b, const struct wire_requests *v)
{
    put_requests(b, WIRE_RELEASE, v);
}

void wire_put_settled(struct buf *b, const struct wire_settled *v)
{
    size_t start = wire_begin(b, WIRE_SETTLED);

    buf_append(b, &v->request, sizeof v->request);
    buf_put_u8(b, v->is_known);
    buf_put_u32(b, v->prompt_tokens);
    buf_put_u32(b, v->cached_tokens);
    buf_put_u32(b, v->output_tokens);
    wire_end(b, start);
}

enum status wire_get_bare(const struct wire_frame *f)
{
    struct reader r = wire_body_of(f);

    return wire_done(&r);
}

static enum status get_requests(const struct wire_frame *f, struct wire_requests *out)
{
    struct reader r = wire_body_of(f);
    const void *ids;

    out->n = reader_u32(&r);
    if (out->n == 0 || out->n > WIRE_CLAIM_MAX)
        return ST_CORRUPT;
    ids = reader_bytes(&r, out->n * sizeof out->ids[0]);
    if (ids != NULL)
        memcpy(out->ids, ids, out->n * sizeof out->ids[0]);
    return wire_done(&r);
}

enum status wire_get_claim(const struct wire_frame *f, struct wire_requests *out)
{
    return get_requests(f, out);
}

enum status wire_get_release(const struct wire_frame *f, struct wire_requests *out)
{
    return get_requests(f, out);
}

enum status wire_get_settled(const struct wire_frame *f, struct wire_settled *out)
{
    struct reader r = wire_body_of(f);
    const void *request = reader_bytes(&r, sizeof out->request);
    uint8_t is_known = reader_u8(&r);

    if (request != NULL)
        memcpy(&out->request, request, sizeof out->request);
    out->is_known = is_known != 0;
    out->prompt_tokens = reader_u32(&r);
    out->cached_tokens = reader_u32(&r);
    out->output_tokens = reader_u32(&r);
    if (is_known > 1 || out->cached_tokens > out->prompt_tokens ||
        (!out->is_known && (out->prompt_tokens | out->output_tokens) != 0))
        return ST_CORRUPT;
    return wire_done(&r);
}
