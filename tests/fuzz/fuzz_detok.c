/* Bytes as byte tokens, with stop strings cut from the input. However they are cut into pieces,
 * what comes out is valid UTF-8 and holds no stop string. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/detok.h"
#include "tests/lib/gguf_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tokenizer *make_tokenizer(void)
{
    const struct tiny_model_options o = {0};
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct gguf_build b;
    struct buf file;

    buf_init(&file);
    gguf_build_init(&b);
    tiny_model_vocabulary(&b, &o);
    gguf_build_finish(&b, &file);
    gguf_build_dispose(&b);
    if (gguf_open_memory(file.data, file.len, &g, NULL) != ST_OK ||
        tokenizer_new(g, &t, NULL) != ST_OK)
        abort();
    gguf_close(g);
    buf_dispose(&file);
    return t;
}

static void check(const struct buf *out, const struct text_span *stops, size_t n_stops)
{
    if (!utf8_is_valid(out->data, out->len))
        abort();
    for (size_t i = 0; i < n_stops; i++)
        if (out->len > 0 && memmem(out->data, out->len, stops[i].text, stops[i].len) != NULL)
            abort();
}

static void check_counts(const struct detok *d, bool stopped)
{
    uint64_t fed = detok_fed_bytes(d), released = detok_released_bytes(d);

    if (released > fed || (!stopped && fed - released > DETOK_HELD_BYTES_MAX))
        abort();
}

/* The first byte says how many stop strings follow, each with its length before it. */
static size_t read_stops(const uint8_t *data, size_t size, struct text_span *stops, size_t *at)
{
    size_t n = data[0] % (STOP_STRINGS_MAX + 1), k = 0;

    *at = 1;
    while (k < n && *at < size) {
        size_t len = data[*at] % 8 + 1u;

        if (len > size - *at - 1)
            break;
        stops[k++] = (struct text_span){(const char *)data + *at + 1, len, false};
        *at += 1 + len;
    }
    return k;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *t;
    struct text_span stops[STOP_STRINGS_MAX];
    struct detok *d = NULL;
    size_t at, n_stops;
    struct buf out;

    if (t == NULL)
        t = make_tokenizer();
    if (size == 0)
        return 0;
    n_stops = read_stops(data, size, stops, &at);
    if (detok_new(t, stops, n_stops, &d) != ST_OK)
        return 0;
    buf_init(&out);
    for (; at < size; at++)
        check_counts(d, detok_feed(d, TINY_BYTE0 + data[at], &out));
    detok_flush(d, &out);
    check_counts(d, true);
    check(&out, stops, n_stops);
    buf_dispose(&out);
    detok_free(d);
    return 0;
}
