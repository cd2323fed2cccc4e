#include <openssl/evp.h>

#include "base/id.h"
#include "engine/model/model_file.h"

#define SAMPLES      64
#define SAMPLE_BYTES ((size_t)64 * 1024)

/* The tensor data of all parts, one after the other. */
static size_t data_bytes(const struct gguf *g)
{
    const struct gguf_part *p;
    size_t total = 0;

    for (size_t i = 0; (p = gguf_part_at(g, i)) != NULL; i++)
        total += p->len - p->data_start;
    return total;
}

/* Bytes [at, at + len) of the data, which may lie in several parts. */
static bool hash_range(EVP_MD_CTX *ctx, const struct gguf *g, size_t at, size_t len)
{
    const struct gguf_part *p;

    for (size_t i = 0; len > 0 && (p = gguf_part_at(g, i)) != NULL; i++) {
        size_t here = p->len - p->data_start, take;

        if (at >= here) {
            at -= here;
            continue;
        }
        take = here - at < len ? here - at : len;
        if (EVP_DigestUpdate(ctx, p->bytes + p->data_start + at, take) != 1)
            return false;
        at = 0;
        len -= take;
    }
    return true;
}

/* Samples lie evenly from the first byte to the last; data no longer than all of them is hashed
 * whole. */
static bool hash_data(EVP_MD_CTX *ctx, const struct gguf *g)
{
    const size_t len = data_bytes(g), span = len - SAMPLE_BYTES;

    if (len <= SAMPLES * SAMPLE_BYTES)
        return hash_range(ctx, g, 0, len);
    for (size_t i = 0; i < SAMPLES; i++) {
        /* span * i / (SAMPLES - 1) without the overflow */
        size_t at = span / (SAMPLES - 1) * i + span % (SAMPLES - 1) * i / (SAMPLES - 1);

        if (!hash_range(ctx, g, at, SAMPLE_BYTES))
            return false;
    }
    return true;
}

static bool hash_head(EVP_MD_CTX *ctx, const struct gguf_part *p)
{
    uint8_t size_le[8];

    for (int i = 0; i < 8; i++)
        size_le[i] = (uint8_t)((uint64_t)p->len >> (8 * i));
    return EVP_DigestUpdate(ctx, size_le, sizeof size_le) == 1 &&
           EVP_DigestUpdate(ctx, p->bytes, p->data_start) == 1;
}

static bool hash_parts(EVP_MD_CTX *ctx, const struct gguf *g, uint8_t digest[32])
{
    const struct gguf_part *p;

    if (EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1)
        return false;
    for (size_t i = 0; (p = gguf_part_at(g, i)) != NULL; i++)
        if (!hash_head(ctx, p))
            return false;
    return hash_data(ctx, g) && EVP_DigestFinal_ex(ctx, digest, NULL) == 1;
}

enum status model_hash(const struct gguf *g, char out[65], struct reason *why)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    uint8_t digest[32];
    bool hashed = ctx != NULL && hash_parts(ctx, g, digest);

    EVP_MD_CTX_free(ctx);
    if (!hashed)
        return fail(why, ST_INTERNAL, "SHA-256 of the model failed");
    hex_encode(digest, sizeof digest, out);
    return ST_OK;
}
