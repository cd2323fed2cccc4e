/* A model file from a stranger: parser, model and tokenizer. What opens is used. Seeds are made by
 * tests/fuzz/seeds_gguf.py. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Tensors that were accepted can be read in full. */
static void touch_tensors(const struct gguf *g)
{
    volatile uint8_t sum = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);

        sum = (uint8_t)(sum + *(const uint8_t *)t->data + ((const uint8_t *)t->data)[t->bytes - 1]);
    }
}

static void use_tokenizer(const struct gguf *g)
{
    static const char text[] = "hello world <|im_end|> 42 \xC3\xA9\n\n";
    const struct text_span spans[] = {{text, sizeof text - 1, true}, {text, 8, false}};
    struct tokenizer *t = NULL;
    struct token_ids ids = {0};
    size_t len, total = 0;

    if (tokenizer_new(g, &t, NULL) != ST_OK)
        return;
    if (tokenizer_encode(t, spans, COUNT_OF(spans), true, 1000, &ids) == ST_OK)
        for (size_t i = 0; i < ids.n; i++) {
            (void)tokenizer_piece(t, ids.ids[i], &len);
            total += len;
        }
    /* The text, and a BOS of any length. */
    if (total > 2 * sizeof text + 4096)
        abort();
    token_ids_dispose(&ids);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy aligned as a mapping is. */
    void *copy = malloc(size > 0 ? size : 1);
    struct gguf *g = NULL;
    struct model *m = NULL;

    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    if (gguf_open_memory(copy, size, &g, NULL) == ST_OK) {
        touch_tensors(g);
        use_tokenizer(g);
        gguf_close(g);
    }
    if (model_open_memory(copy, size, &m, NULL) == ST_OK)
        model_close(m);
    free(copy);
    return 0;
}
