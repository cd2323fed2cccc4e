#include "engine/core/cache_key.h"

#include <string.h>

/* OpenSSL 3 marks these as old; those it has instead allocate for each message. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

static const char domain_tag[] = "sluice kv page 1";

static void store_u32(uint8_t *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

static void put(SHA256_CTX *h, const void *bytes, size_t n)
{
    uint8_t length[8];

    store_u32(length, (uint32_t)n);
    store_u32(length + 4, (uint32_t)((uint64_t)n >> 32));
    SHA256_Update(h, length, sizeof length);
    if (n > 0)
        SHA256_Update(h, bytes, n);
}

static void put_u32(SHA256_CTX *h, uint32_t v)
{
    uint8_t bytes[4];

    store_u32(bytes, v);
    put(h, bytes, sizeof bytes);
}

static void put_adapter(SHA256_CTX *h, const struct cache_domain *d)
{
    uint32_t scale_bits;

    if (!d->has_adapter) {
        put(h, NULL, 0);
        put(h, NULL, 0);
        return;
    }
    _Static_assert(sizeof scale_bits == sizeof d->adapter_scale, "float is binary32");
    memcpy(&scale_bits, &d->adapter_scale, sizeof scale_bits);
    put(h, d->adapter, sizeof d->adapter);
    put_u32(h, scale_bits);
}

static void put_ids(SHA256_CTX *h, const int32_t *ids)
{
    uint8_t bytes[KV_PAGE_TOKENS * 4];

    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        store_u32(bytes + i * 4, (uint32_t)ids[i]);
    put(h, bytes, sizeof bytes);
}

void cache_key_of(const struct cache_domain *d, const struct cache_key *parent, const int32_t *ids,
                  struct cache_key *out)
{
    SHA256_CTX h;

    SHA256_Init(&h);
    put(&h, domain_tag, sizeof domain_tag - 1);
    put(&h, d->salt, sizeof d->salt);
    put(&h, d->revision, strlen(d->revision));
    put_adapter(&h, d);
    put_u32(&h, d->kv_type);
    put_u32(&h, d->mode);
    put(&h, parent, parent == NULL ? 0 : sizeof parent->bytes);
    put_ids(&h, ids);
    SHA256_Final(out->bytes, &h);
}
