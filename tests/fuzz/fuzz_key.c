/* key_parse on any bytes: it may only accept what key_make could have made. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "auth/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_parts(const char *text, size_t size, const char *id, size_t id_len,
                        const char *secret, size_t secret_len)
{
    assert(size == KEY_CHARS && id_len == KEY_PUBLIC_ID_CHARS && secret_len == KEY_SECRET_CHARS);
    assert(id >= text && secret + secret_len <= text + size);
    assert(memchr(text, '\0', size) == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size > 0 ? size : 1); /* exact, so that a look past the end is seen */
    const char *id, *secret;
    size_t id_len, secret_len;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    if (key_parse(text, size, &id, &id_len, &secret, &secret_len))
        check_parts(text, size, id, id_len, secret, secret_len);
    free(text);
    return 0;
}
