/* What the files of wire/ share: the frame around a body, and the values that base/ has no calls
 * for. Nobody else includes this. */
#ifndef ENGINE_WIRE_WIRE_PARTS_H
#define ENGINE_WIRE_WIRE_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/reader.h"
#include "engine/wire/wire.h"

/* Appends a header; its place, for wire_end, which fills in the length. */
size_t wire_begin(struct buf *b, enum wire_type type);
void wire_end(struct buf *b, size_t start);
void wire_put_f32(struct buf *b, float v);
/* Overwrites four bytes that are there. */
void wire_put_u32_at(struct buf *b, size_t at, uint32_t v);

static inline struct reader wire_body_of(const struct wire_frame *f)
{
    struct reader r;

    reader_init(&r, f->body, f->len);
    return r;
}

/* Everything was there, and nothing more. */
static inline enum status wire_done(const struct reader *r)
{
    return r->failed || reader_left(r) != 0 ? ST_CORRUPT : ST_OK;
}

#endif
