/* A growable byte buffer. Owner: whoever declared it; buf_dispose frees. A failed allocation marks
 * the buffer (`failed`) and later appends do nothing, so that a writer checks once at its end.
 * One thread at a time. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct buf {
    char *data; /* `len` bytes, and room for a terminating NUL that buf_cstr writes */
    size_t len;
    size_t cap;
    size_t limit; /* appends that would pass it set `failed`; 0: none */
    bool failed;
};

void buf_init(struct buf *b);
void buf_dispose(struct buf *b);
/* Empties it, keeps the memory, clears `failed`. */
void buf_clear(struct buf *b);
/* Makes room for `extra` more bytes; false (and `failed`) when that can't be had. */
bool buf_reserve(struct buf *b, size_t extra);
void buf_append(struct buf *b, const void *data, size_t len);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Drops the first `n` bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);
/* NUL-terminated view; "" when empty or failed. Valid until the next change. */
const char *buf_cstr(struct buf *b);

/* Little-endian scalars. */
void buf_put_u8(struct buf *b, uint8_t v);
void buf_put_u16(struct buf *b, uint16_t v);
void buf_put_u32(struct buf *b, uint32_t v);
void buf_put_u64(struct buf *b, uint64_t v);

#endif
