#include "base/id.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>

void random_bytes(void *out, size_t len)
{
    char *p = out;

    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);

        if (n == -1) {
            assert(errno == EINTR);
            continue;
        }
        p += n;
        len -= (size_t)n;
    }
}

void hex_encode(const void *data, size_t len, char *out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = data;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[p[i] >> 4];
        out[2 * i + 1] = digits[p[i] & 15];
    }
    out[2 * len] = '\0';
}

struct id id_new(int64_t wall_ms)
{
    struct id id;

    random_bytes(id.bytes, sizeof id.bytes);
    for (int i = 0; i < 6; i++)
        id.bytes[i] = (uint8_t)((uint64_t)wall_ms >> (40 - 8 * i));
    id.bytes[6] = (uint8_t)(0x70 | (id.bytes[6] & 0x0F));
    id.bytes[8] = (uint8_t)(0x80 | (id.bytes[8] & 0x3F));
    return id;
}

void id_to_hex(const struct id *id, char out[ID_HEX_BYTES])
{
    hex_encode(id->bytes, sizeof id->bytes, out);
}

void id_to_uuid(const struct id *id, char out[ID_UUID_BYTES])
{
    char hex[ID_HEX_BYTES];
    size_t at = 0;

    id_to_hex(id, hex);
    for (size_t i = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20)
            out[at++] = '-';
        out[at++] = hex[i];
    }
    out[at] = '\0';
}

bool id_equal(const struct id *a, const struct id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}
