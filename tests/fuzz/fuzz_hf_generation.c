/* A stranger's generation_config.json. What is accepted must be metadata that the GGUF parser
 * takes, and the defaults read from it ones that a request may have. */
#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "engine/generation_defaults.h"
#include "engine/model/hf_generation.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_absent(float v)
{
    return v >= -1 && v <= -1;
}

static void check(const struct gguf *g)
{
    struct engine_defaults d;

    generation_defaults_read(g, &d);
    if (!is_absent(d.temperature) && !(d.temperature >= 0 && d.temperature <= 2))
        abort();
    if (!is_absent(d.top_p) && !(d.top_p > 0 && d.top_p <= 1))
        abort();
    if (!is_absent(d.min_p) && !(d.min_p >= 0 && d.min_p <= 1))
        abort();
    if (!is_absent(d.repetition_penalty) &&
        !(d.repetition_penalty > 0 && d.repetition_penalty <= 2))
        abort();
    if (d.top_k < -1)
        abort();
}

static void parse_back(const struct hf_meta *m)
{
    struct gguf *g = NULL;
    struct buf file;

    buf_init(&file);
    if (hf_meta_finish(m, &file) == ST_OK) {
        if (gguf_open_memory(file.data, file.len, &g, NULL) != ST_OK)
            abort();
        check(g);
        gguf_close(g);
    }
    buf_dispose(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_span text = {(const char *)data, size};
    struct hf_meta m;

    if (size == 0 || !utf8_is_valid(text.text, size)) /* who reads the file looks */
        return 0;
    hf_meta_init(&m, "llama");
    if (hf_generation_put(text, &m, NULL) == ST_OK)
        parse_back(&m);
    hf_meta_dispose(&m);
    return 0;
}
