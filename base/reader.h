/* A cursor over bytes from outside: every read is checked against the end; after the first failed
 * read `failed` stays set and reads give 0 or NULL. Borrows the bytes. One thread at a time. */
#ifndef BASE_READER_H
#define BASE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reader {
    const uint8_t *data;
    size_t len;
    size_t pos;
    bool failed;
};

void reader_init(struct reader *r, const void *data, size_t len);
size_t reader_left(const struct reader *r);
uint8_t reader_u8(struct reader *r);
uint16_t reader_u16(struct reader *r); /* little-endian, as all of these */
uint32_t reader_u32(struct reader *r);
uint64_t reader_u64(struct reader *r);
float reader_f32(struct reader *r);
/* Borrowed pointer to the next n bytes, or NULL. */
const void *reader_bytes(struct reader *r, size_t n);

#endif
