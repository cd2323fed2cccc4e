#include "base/reader.h"

#include <string.h>

void reader_init(struct reader *r, const void *data, size_t len)
{
    *r = (struct reader){.data = data, .len = len};
}

size_t reader_left(const struct reader *r)
{
    return r->len - r->pos;
}

const void *reader_bytes(struct reader *r, size_t n)
{
    const void *p;

    if (r->failed || n > reader_left(r)) {
        r->failed = true;
        return NULL;
    }
    p = r->data + r->pos;
    r->pos += n;
    return p;
}

static uint64_t get_le(struct reader *r, size_t bytes)
{
    const uint8_t *p = reader_bytes(r, bytes);
    uint64_t v = 0;

    if (p == NULL)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t reader_u8(struct reader *r)
{
    return (uint8_t)get_le(r, 1);
}

uint16_t reader_u16(struct reader *r)
{
    return (uint16_t)get_le(r, 2);
}

uint32_t reader_u32(struct reader *r)
{
    return (uint32_t)get_le(r, 4);
}

uint64_t reader_u64(struct reader *r)
{
    return get_le(r, 8);
}

float reader_f32(struct reader *r)
{
    uint32_t bits = reader_u32(r);
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}
