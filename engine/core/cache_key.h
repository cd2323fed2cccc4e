/* The name of one full KV page in the prefix cache: SHA-256 over everything its content depends on,
 * and over the tenant's salt. Two pages have one key only if they would hold the same bits and may
 * be shared.
 *
 * Hashed, each as a field of its own: 8 bytes of length (little-endian), then the bytes:
 *
 *   1 "sluice kv page 1"            domain tag; changes with this list
 *   2 tenant salt                   32 bytes
 *   3 model revision                text without its NUL
 *   4 adapter content hash          32 bytes; no adapter: empty
 *   5 adapter scale                 4 bytes, IEEE 754 binary32, little-endian; no adapter: empty
 *   6 KV type                       4 bytes, little-endian
 *   7 numeric mode                  4 bytes, little-endian
 *   8 key of the page before it     32 bytes; first page: empty
 *   9 token ids                     KV_PAGE_TOKENS x 4 bytes, two's complement, little-endian
 *
 * Lengths make the framing unambiguous: no bytes can move from one field to the next and give the
 * same input. Contents are hashed, never names or load generations, which can be given twice. */
#ifndef ENGINE_CORE_CACHE_KEY_H
#define ENGINE_CORE_CACHE_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/device.h"

#define CACHE_HASH_BYTES 32

struct cache_key {
    uint8_t bytes[CACHE_HASH_BYTES];
};

/* What is the same for all pages of a request. */
struct cache_domain {
    uint8_t salt[CACHE_HASH_BYTES]; /* derived by the server from the authenticated tenant; never
                                       from the body of a request */
    const char *revision;           /* of the model; outlives the domain */
    bool has_adapter;
    uint8_t adapter[CACHE_HASH_BYTES]; /* hash of its content; read only with has_adapter */
    float adapter_scale;               /* likewise */
    uint32_t kv_type;                  /* how the device stores K and V */
    uint32_t mode;                     /* enum device_mode */
};

/* The key of the page with ids (KV_PAGE_TOKENS) after the page `parent` (NULL: the first page),
 * which may be out. Allocates nothing. Any thread. */
void cache_key_of(const struct cache_domain *d, const struct cache_key *parent, const int32_t *ids,
                  struct cache_key *out);

#endif
