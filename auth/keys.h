/* The text of a key and what is stored of it. Pure; any thread. */
#ifndef AUTH_KEYS_H
#define AUTH_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auth/auth.h"

#define KEY_PREFIX          "sk-sluice-"
#define KEY_PUBLIC_ID_CHARS 16 /* 95 bits: no two alike, and none to guess */
#define KEY_SECRET_CHARS    43 /* 256 bits */
#define KEY_CHECKSUM_CHARS  6  /* 62^6 > 2^32 */
#define KEY_CHARS                                                                                  \
    (sizeof KEY_PREFIX - 1 + KEY_PUBLIC_ID_CHARS + 1 + KEY_SECRET_CHARS + KEY_CHECKSUM_CHARS)
#define KEY_MAC_BYTES    32
#define PEPPER_ID_CHARS  16
#define PEPPER_CHARS_MIN 64 /* hex digits of 32 bytes */

/* A fresh key into out_key[KEY_TEXT_BYTES], from the kernel's generator. */
void key_make(char *out_key);
/* HMAC-SHA-256 under the pepper's text. */
void key_mac(const char *pepper, const char *secret, size_t secret_len, uint8_t out[KEY_MAC_BYTES]);
/* Takes the same time whatever differs. */
bool key_mac_equal(const uint8_t a[KEY_MAC_BYTES], const uint8_t b[KEY_MAC_BYTES]);
/* HMAC-SHA-256 under the pepper of "kv cache", a NUL and the tenant's id (8 bytes, little-endian):
 * no secret of a key (text without NUL) is hashed to it. */
void key_cache_salt(const char *pepper, int64_t tenant_id, uint8_t out[CACHE_SALT_BYTES]);
/* Names a pepper without giving it away. */
void key_pepper_id(const char *pepper, char out[PEPPER_ID_CHARS + 1]);
bool key_pepper_is_valid(const char *pepper);

#endif
