#include "auth/keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/id.h"

static const char base62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
#define BASE62_COUNT (sizeof base62 - 1)

/* 248 is the highest multiple of 62 in a byte: rejecting what is above keeps every character
 * equally likely. */
static void random_text(char *out, size_t n)
{
    uint8_t byte;

    for (size_t i = 0; i < n;) {
        random_bytes(&byte, 1);
        if (byte < 248)
            out[i++] = base62[byte % BASE62_COUNT];
    }
}

/* CRC-32 (zlib's) of the text before it, most significant digit first. */
static void checksum(const char *text, size_t len, char out[KEY_CHECKSUM_CHARS])
{
    unsigned long crc = crc32(0, (const Bytef *)text, (uInt)len);

    for (int i = KEY_CHECKSUM_CHARS - 1; i >= 0; i--) {
        out[i] = base62[crc % BASE62_COUNT];
        crc /= BASE62_COUNT;
    }
}

void key_make(char *out_key)
{
    char *at = out_key + sizeof KEY_PREFIX - 1;

    memcpy(out_key, KEY_PREFIX, sizeof KEY_PREFIX - 1);
    random_text(at, KEY_PUBLIC_ID_CHARS);
    at += KEY_PUBLIC_ID_CHARS;
    *at++ = '-';
    random_text(at, KEY_SECRET_CHARS);
    at += KEY_SECRET_CHARS;
    checksum(out_key, (size_t)(at - out_key), at);
    at[KEY_CHECKSUM_CHARS] = '\0';
}

static bool is_base62(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] == '\0' || strchr(base62, s[i]) == NULL)
            return false;
    return true;
}

bool key_parse(const char *text, size_t len, const char **public_id, size_t *public_id_len,
               const char **secret, size_t *secret_len)
{
    const char *id = text + sizeof KEY_PREFIX - 1;
    const char *hyphen = id + KEY_PUBLIC_ID_CHARS;
    const char *sum = hyphen + 1 + KEY_SECRET_CHARS;
    char expected[KEY_CHECKSUM_CHARS];

    if (len != KEY_CHARS || memcmp(text, KEY_PREFIX, sizeof KEY_PREFIX - 1) != 0)
        return false;
    if (!is_base62(id, KEY_PUBLIC_ID_CHARS) || *hyphen != '-' ||
        !is_base62(hyphen + 1, KEY_SECRET_CHARS))
        return false;
    checksum(text, (size_t)(sum - text), expected);
    if (memcmp(sum, expected, sizeof expected) != 0)
        return false;
    *public_id = id;
    *public_id_len = KEY_PUBLIC_ID_CHARS;
    *secret = hyphen + 1;
    *secret_len = KEY_SECRET_CHARS;
    return true;
}

void key_mac(const char *pepper, const char *secret, size_t secret_len, uint8_t out[KEY_MAC_BYTES])
{
    unsigned int len = KEY_MAC_BYTES;

    HMAC(EVP_sha256(), pepper, (int)strlen(pepper), (const unsigned char *)secret, secret_len, out,
         &len);
}

bool key_mac_equal(const uint8_t a[KEY_MAC_BYTES], const uint8_t b[KEY_MAC_BYTES])
{
    return CRYPTO_memcmp(a, b, KEY_MAC_BYTES) == 0;
}

/* A hash of its own kind, so that it says nothing about the HMAC's inner state. */
void key_pepper_id(const char *pepper, char out[PEPPER_ID_CHARS + 1])
{
    static const char domain[] = "sluice pepper id";
    uint8_t mac[KEY_MAC_BYTES];

    key_mac(pepper, domain, sizeof domain - 1, mac);
    hex_encode(mac, PEPPER_ID_CHARS / 2, out);
}

void key_cache_salt(const char *pepper, int64_t tenant_id, uint8_t out[CACHE_SALT_BYTES])
{
    char message[] = "kv cache\0--------";
    char *id = message + sizeof "kv cache";

    for (int i = 0; i < 8; i++)
        id[i] = (char)(uint8_t)((uint64_t)tenant_id >> (8 * i));
    key_mac(pepper, message, sizeof "kv cache" + 8, out);
}

bool key_pepper_is_valid(const char *pepper)
{
    size_t n = strspn(pepper, "0123456789abcdefABCDEF");

    return n >= PEPPER_CHARS_MIN && pepper[n] == '\0';
}
