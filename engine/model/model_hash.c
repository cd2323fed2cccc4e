#include <openssl/evp.h>

#include "base/id.h"
#include "engine/model/model_file.h"

#define SAMPLES      64
#define SAMPLE_BYTES ((size_t)64 * 1024)

/* Samples lie evenly from the first byte to the last; data no longer than all of them is hashed
 * whole. */
static bool hash_data(EVP_MD_CTX *ctx, const uint8_t *data, size_t len)
{
    size_t span;

    if (len <= SAMPLES * SAMPLE_BYTES)
        return EVP_DigestUpdate(ctx, data, len) == 1;
    span = len - SAMPLE_BYTES;
    for (size_t i = 0; i < SAMPLES; i++) {
        /* span * i / (SAMPLES - 1) without the overflow */
        size_t at = span / (SAMPLES - 1) * i + span % (SAMPLES - 1) * i / (SAMPLES - 1);

        if (EVP_DigestUpdate(ctx, data + at, SAMPLE_BYTES) != 1)
            return false;
    }
    return true;
}

static bool hash_file(EVP_MD_CTX *ctx, const struct gguf *g, uint8_t digest[32])
{
    const uint8_t *base = gguf_bytes(g);
    size_t start = gguf_data_start(g), len = gguf_file_bytes(g);
    uint8_t size_le[8];

    for (int i = 0; i < 8; i++)
        size_le[i] = (uint8_t)((uint64_t)len >> (8 * i));
    return EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
           EVP_DigestUpdate(ctx, size_le, sizeof size_le) == 1 &&
           EVP_DigestUpdate(ctx, base, start) == 1 && hash_data(ctx, base + start, len - start) &&
           EVP_DigestFinal_ex(ctx, digest, NULL) == 1;
}

enum status model_hash(const struct gguf *g, char out[65], struct reason *why)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    uint8_t digest[32];
    bool hashed = ctx != NULL && hash_file(ctx, g, digest);

    EVP_MD_CTX_free(ctx);
    if (!hashed)
        return fail(why, ST_INTERNAL, "SHA-256 of the model failed");
    hex_encode(digest, sizeof digest, out);
    return ST_OK;
}
