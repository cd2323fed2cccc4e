/* A vocabulary of any kind from a stranger: tokens, types, scores, merges and charsmap are cut from
 * the input, and may lie about how many they are; what opens encodes a text, which must come out as
 * known ids, and never as a control token. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/reader.h"
#include "base/size.h"
#include "base/utf8.h"
#include "engine/text/detok.h"
#include "engine/text/tokenizer.h"
#include "tests/lib/gguf_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the second byte of the input asks for. */
enum {
    WITH_SCORES = 1,
    WITH_MERGES = 2,
    WITH_CHARSMAP = 4,
    LYING_SCORES = 8, /* their number is eight bytes of the input */
    MERGES_SPACES = 16,
    NO_PREFIX = 32,
    ADDS_EOS = 64,
};

static void put_count(struct gguf_build *b, const char *key, enum gguf_type type, uint64_t n)
{
    gguf_build_key(b, key, GGUF_ARRAY);
    buf_put_u32(&b->kv, type);
    buf_put_u64(&b->kv, n);
}

/* Strings of up to 15 bytes, each with its length before it. */
static void put_strings(struct gguf_build *b, struct reader *r, const char *key, size_t n)
{
    put_count(b, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) {
        size_t len = reader_u8(r) % 16u;
        const void *s = reader_bytes(r, len);

        len = s != NULL ? len : 0;
        buf_put_u64(&b->kv, len);
        buf_append(&b->kv, s, len);
    }
}

static void put_types(struct gguf_build *b, struct reader *r, size_t n)
{
    put_count(b, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        buf_put_u32(&b->kv, 1u + reader_u8(r) % 6u);
}

static void put_scores(struct gguf_build *b, struct reader *r, size_t n, bool lying)
{
    put_count(b, "tokenizer.ggml.scores", GGUF_F32, lying ? reader_u64(r) : n);
    for (size_t i = 0; i < n; i++) {
        uint8_t score = reader_u8(r);
        float f = -(float)score;
        uint32_t bits;

        memcpy(&bits, &f, sizeof bits);
        buf_put_u32(&b->kv, score == 255 ? 0x7FC00000 : bits); /* not a number */
    }
}

static void put_charsmap(struct gguf_build *b, struct reader *r)
{
    size_t len = reader_u16(r) % 4096u;
    const void *bytes = reader_bytes(r, len);

    len = bytes != NULL ? len : 0;
    put_count(b, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, len);
    buf_append(&b->kv, bytes, len);
}

static void put_vocabulary(struct gguf_build *b, struct reader *r)
{
    static const char *const kinds[] = {"gpt2", "llama", "t5", "bert"};
    static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen2", "deepseek-v3"};
    uint8_t kind = reader_u8(r), how = reader_u8(r);
    size_t n = reader_u8(r);

    gguf_build_string(b, "tokenizer.ggml.model", kinds[kind % 4]);
    gguf_build_string(b, "tokenizer.ggml.pre", pres[kind / 4 % 4]);
    put_strings(b, r, "tokenizer.ggml.tokens", n);
    put_types(b, r, n);
    if (how & WITH_SCORES)
        put_scores(b, r, n, (how & LYING_SCORES) != 0);
    if (how & WITH_MERGES)
        put_strings(b, r, "tokenizer.ggml.merges", reader_u8(r));
    if (how & WITH_CHARSMAP)
        put_charsmap(b, r);
    gguf_build_bool(b, "tokenizer.ggml.remove_extra_whitespaces", (how & MERGES_SPACES) != 0);
    gguf_build_bool(b, "tokenizer.ggml.add_space_prefix", (how & NO_PREFIX) == 0);
    gguf_build_bool(b, "tokenizer.ggml.add_bos_token", false);
    if (how & ADDS_EOS)
        gguf_build_u32(b, "tokenizer.ggml.eos_token_id", 0);
}

/* Unknown characters become the unknown token, which is one: the only one that text may give. */
static void check_ids(const struct tokenizer *t, const struct token_ids *ids)
{
    int32_t unknown = -1;

    for (size_t i = 0; i < ids->n; i++) {
        if (ids->ids[i] < 0 || (uint32_t)ids->ids[i] >= tokenizer_n_vocab(t))
            abort();
        if (!tokenizer_is_control(t, ids->ids[i]))
            continue;
        if (unknown != -1 && ids->ids[i] != unknown)
            abort();
        unknown = ids->ids[i];
    }
}

static void decode(const struct tokenizer *t, const struct token_ids *ids)
{
    struct detok *d = NULL;
    struct buf out;

    if (detok_new(t, NULL, 0, &d) != ST_OK)
        return;
    buf_init(&out);
    for (size_t i = 0; i < ids->n; i++)
        (void)detok_feed(d, ids->ids[i], &out);
    detok_flush(d, &out);
    if (!utf8_is_valid(out.data, out.len))
        abort();
    buf_dispose(&out);
    detok_free(d);
}

static void use(const struct tokenizer *t, struct reader *r)
{
    size_t len = reader_left(r);
    const struct text_span span = {reader_bytes(r, len), len, false};
    struct token_ids ids = {0};

    if (r->failed)
        return;
    if (tokenizer_encode(t, &span, 1, TOKENIZER_BOS, 10000, &ids) == ST_OK) {
        check_ids(t, &ids);
        decode(t, &ids);
    }
    token_ids_dispose(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct gguf_build b;
    struct reader r;
    struct buf file;

    reader_init(&r, data, size);
    buf_init(&file);
    gguf_build_init(&b);
    put_vocabulary(&b, &r);
    gguf_build_finish(&b, &file);
    if (!r.failed && gguf_open_memory(file.data, file.len, &g, NULL) == ST_OK &&
        tokenizer_new(g, &t, NULL) == ST_OK)
        use(t, &r);
    tokenizer_free(t);
    gguf_close(g);
    gguf_build_dispose(&b);
    buf_dispose(&file);
    return 0;
}
