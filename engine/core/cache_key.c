#include "engine/core/cache_key.h"

#include <assert.h>
#include <string.h>

#include <openssl/evp.h>

static const char domain_tag[] = "sluice kv page 1";

enum status cache_hasher_init(struct cache_hasher *h)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (ctx == NULL)
        return ST_NO_MEMORY;
    if (EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1) {
        EVP_MD_CTX_free(ctx);
        return ST_INTERNAL;
    }
    h->ctx = ctx;
    return ST_OK;
}

void cache_hasher_dispose(struct cache_hasher *h)
{
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
}

static void store_u32(uint8_t *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

/* A set-up SHA-256 has nothing left that can fail: no input is too long for it. */
static void update(struct cache_hasher *h, const void *bytes, size_t n)
{
    int ok = EVP_DigestUpdate(h->ctx, bytes, n);

    assert(ok == 1);
}

static void put(struct cache_hasher *h, const void *bytes, size_t n)
{
    uint8_t length[8];

    store_u32(length, (uint32_t)n);
    store_u32(length + 4, (uint32_t)((uint64_t)n >> 32));
    update(h, length, sizeof length);
    if (n > 0)
        update(h, bytes, n);
}

static void put_u32(struct cache_hasher *h, uint32_t v)
{
    uint8_t bytes[4];

    store_u32(bytes, v);
    put(h, bytes, sizeof bytes);
}

static void put_adapter(struct cache_hasher *h, const struct cache_domain *d)
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

static void put_ids(struct cache_hasher *h, const int32_t *ids)
{
    uint8_t bytes[KV_PAGE_TOKENS * 4];

    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        store_u32(bytes + i * 4, (uint32_t)ids[i]);
    put(h, bytes, sizeof bytes);
}

void cache_key_of(struct cache_hasher *h, const struct cache_domain *d,
                  const struct cache_key *parent, const int32_t *ids, struct cache_key *out)
{
    struct cache_key key;
    int ok = EVP_DigestInit_ex(h->ctx, NULL, NULL); /* the same digest, from its beginning */

    assert(ok == 1);
    put(h, domain_tag, sizeof domain_tag - 1);
    put(h, d->salt, sizeof d->salt);
    put(h, d->revision, strlen(d->revision));
    put_adapter(h, d);
    put_u32(h, d->kv_type);
    put_u32(h, d->mode);
    put(h, parent, parent == NULL ? 0 : sizeof parent->bytes);
    put_ids(h, ids);
    ok = EVP_DigestFinal_ex(h->ctx, key.bytes, NULL);
    assert(ok == 1);
    *out = key; /* last, so that out may be parent */
}
