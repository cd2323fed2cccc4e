#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

void buf_init(struct buf *b)
{
    memset(b, 0, sizeof *b);
}

void buf_dispose(struct buf *b)
{
    free(b->data);
    buf_init(b);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
}

bool buf_reserve(struct buf *b, size_t extra)
{
    size_t need, cap;
    char *p;

    if (b->failed)
        return false;
    if (!size_add(b->len, extra, &need) || !size_add(need, 1, &need) ||
        (b->limit != 0 && need - 1 > b->limit)) {
        b->failed = true;
        return false;
    }
    if (need <= b->cap)
        return true;
    cap = b->cap < 128 ? 128 : b->cap;
    while (cap < need)
        if (!size_mul(cap, 2, &cap))
            cap = need;
    p = realloc(b->data, cap);
    if (p == NULL) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    return true;
}

void buf_append(struct buf *b, const void *data, size_t len)
{
    if (len == 0 || !buf_reserve(b, len))
        return;
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void buf_puts(struct buf *b, const char *s)
{
    buf_append(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !buf_reserve(b, (size_t)n))
        return;
    va_start(args, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    va_end(args);
    b->len += (size_t)n;
}

void buf_consume(struct buf *b, size_t n)
{
    if (n >= b->len) {
        b->len = 0;
        return;
    }
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}

const char *buf_cstr(struct buf *b)
{
    if (b->failed || b->data == NULL)
        return "";
    b->data[b->len] = '\0';
    return b->data;
}

void buf_put_u8(struct buf *b, uint8_t v)
{
    buf_append(b, &v, 1);
}

static void put_le(struct buf *b, uint64_t v, size_t bytes)
{
    uint8_t le[8];

    for (size_t i = 0; i < bytes; i++)
        le[i] = (uint8_t)(v >> (8 * i));
    buf_append(b, le, bytes);
}

void buf_put_u16(struct buf *b, uint16_t v)
{
    put_le(b, v, 2);
}

void buf_put_u32(struct buf *b, uint32_t v)
{
    put_le(b, v, 4);
}

void buf_put_u64(struct buf *b, uint64_t v)
{
    put_le(b, v, 8);
}
