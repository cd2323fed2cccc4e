/* Identifiers: UUIDv7 (RFC 9562, section 5.7): time-ordered, 74 random bits. Any thread. */
#ifndef BASE_ID_H
#define BASE_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct id {
    uint8_t bytes[16];
};

#define ID_HEX_BYTES  33 /* 32 lowercase hex digits and NUL: in "chatcmpl-…" and "req_…" */
#define ID_UUID_BYTES 37 /* 8-4-4-4-12 and NUL: for Postgres */

/* `wall_ms` is Unix time. Random bits come from getrandom(2). */
struct id id_new(int64_t wall_ms);
void id_to_hex(const struct id *id, char out[ID_HEX_BYTES]);
void id_to_uuid(const struct id *id, char out[ID_UUID_BYTES]);
bool id_equal(const struct id *a, const struct id *b);

/* Fills `len` bytes from the kernel's generator; aborts only if the kernel has none. */
void random_bytes(void *out, size_t len);

/* Lowercase hex of `len` bytes; out has room for 2 * len + 1. */
void hex_encode(const void *data, size_t len, char *out);

#endif
