/* A stranger's tokenizer.json, and behind a NUL the tokenizer_config.json beside it. What becomes a
 * tokenizer is used. Seeds are made by tests/fuzz/seeds_hf.py. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/utf8.h"
#include "engine/model/hf_tokenizer.h"
#include "engine/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N_VOCAB 600

static void use_tokenizer(const struct gguf *g)
{
    static const char text[] = "hello world <|im_end|> 42 \xC3\xA9\n\n";
    const struct text_span spans[] = {{text, sizeof text - 1, true}, {text, 8, false}};
    struct tokenizer *t = NULL;
    struct token_ids ids = {0};

    if (tokenizer_new(g, &t, NULL) != ST_OK)
        return;
    if (tokenizer_encode(t, spans, COUNT_OF(spans), true, 1000, &ids) == ST_OK)
        for (size_t i = 0; i < ids.n; i++)
            if (ids.ids[i] < 0 || ids.ids[i] >= N_VOCAB)
                abort();
    token_ids_dispose(&ids);
    tokenizer_free(t);
}

static void parse_back(const struct hf_meta *m)
{
    struct gguf *g = NULL;
    struct buf file;

    buf_init(&file);
    if (hf_meta_finish(m, &file) == ST_OK &&
        gguf_open_memory(file.data, file.len, &g, NULL) == ST_OK) {
        use_tokenizer(g);
        gguf_close(g);
    }
    buf_dispose(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *nul = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t first = nul != NULL ? (size_t)(nul - text) : size;
    struct hf_tokenizer_files files = {.tokenizer = {text, first}};
    struct hf_meta m;

    /* Who maps a file has looked at its bytes. */
    if (first == 0 || !utf8_is_valid(text, first))
        return 0;
    if (nul != NULL && utf8_is_valid(nul + 1, size - first - 1))
        files.config = (struct hf_span){nul + 1, size - first - 1};
    hf_meta_init(&m, "llama");
    if (hf_tokenizer_put(&files, N_VOCAB, &m, NULL) == ST_OK)
        parse_back(&m);
    hf_meta_dispose(&m);
    return 0;
}
