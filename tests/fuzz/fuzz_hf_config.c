/* A stranger's config.json. What is accepted must be metadata that the GGUF parser takes, and
 * RoPE's tensors must be there. Seeds are made by tests/fuzz/seeds_hf.py. */
#include <stdint.h>
#include <stdlib.h>

#include "engine/model/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse_back(const struct hf_meta *m)
{
    struct gguf *g = NULL;
    struct buf file;

    buf_init(&file);
    if (hf_meta_finish(m, &file) == ST_OK) {
        if (gguf_open_memory(file.data, file.len, &g, NULL) != ST_OK)
            abort();
        gguf_close(g);
    }
    buf_dispose(&file);
}

static void use(const struct hf_config *c)
{
    float *values = malloc(c->rope.dims / 2 * sizeof *values);
    struct hf_meta m;

    for (size_t i = 0; values != NULL && hf_rope_tensor(&c->rope, i, values) != NULL; i++)
        if (!(values[c->rope.dims / 2 - 1] > 0.0f))
            abort();
    free(values);
    hf_meta_init(&m, c->arch->gguf);
    if (hf_config_put(c, &m, NULL) == ST_OK)
        parse_back(&m);
    hf_meta_dispose(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_config *c = malloc(sizeof *c);

    if (c == NULL)
        return 0;
    if (hf_config_read(c, (const char *)data, size, NULL) == ST_OK) {
        use(c);
        hf_config_dispose(c);
    }
    free(c);
    return 0;
}
