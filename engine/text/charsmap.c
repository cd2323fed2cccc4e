#include "engine/text/charsmap.h"

#include <stdlib.h>
#include <string.h>

#include "base/reader.h"
#include "base/utf8.h"

/* NFKC's longest replacement has 33 bytes. The bound keeps text from growing without one. */
#define REPLACEMENT_BYTES_MAX 64
/* Its longest keys are a letter and a few marks. The bound keeps a trie that runs in a circle from
 * taking quadratic time. */
#define KEY_BYTES_MAX 64

static const char key[] = "tokenizer.ggml.precompiled_charsmap";

/* A unit: bits 0-7 label, 8 has a leaf, 9 the offset is in steps of 256, 10-30 offset, 31 is a leaf
 * (bits 0-30 are then its value). */
static uint32_t label_of(uint32_t unit)
{
    return unit & (1u << 31 | 0xFF);
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

static bool has_leaf(uint32_t unit)
{
    return (unit >> 8 & 1) != 0;
}

static uint32_t value_of(uint32_t unit)
{
    return unit & ~(1u << 31);
}

static enum status check_leaf(const struct charsmap *c, size_t at, struct reason *why)
{
    size_t offset, len;

    if (at >= c->n_units)
        return fail_param(why, ST_CORRUPT, key, "a leaf lies past the end of the trie");
    offset = value_of(c->units[at]);
    if (offset >= c->texts_len)
        return fail_param(why, ST_CORRUPT, key, "a replacement lies past the end");
    len = strlen(c->texts + offset);
    if (len > REPLACEMENT_BYTES_MAX || !utf8_is_valid(c->texts + offset, len))
        return fail_param(why, ST_CORRUPT, key, "a replacement is not UTF-8, or has over %d bytes",
                          REPLACEMENT_BYTES_MAX);
    return ST_OK;
}

/* Each unit is visited once: the ends of keys are shared. */
struct walk {
    uint32_t *stack; /* bases of nodes whose children are to be visited */
    size_t n;
    bool *seen; /* by unit */
};

static enum status visit_children(const struct charsmap *c, struct walk *w, uint32_t base,
                                  struct reason *why)
{
    /* A key has no NUL, and label 0 is where a leaf lies. */
    for (uint32_t byte = 1; byte < 256; byte++) {
        size_t at = base ^ byte;
        uint32_t unit, next;
        enum status s = ST_OK;

        if (at >= c->n_units || label_of(c->units[at]) != byte || w->seen[at])
            continue;
        w->seen[at] = true;
        unit = c->units[at];
        next = (uint32_t)at ^ offset_of(unit);
        if (has_leaf(unit))
            s = check_leaf(c, next, why);
        if (s != ST_OK)
            return s;
        w->stack[w->n++] = next;
    }
    return ST_OK;
}

static enum status check_trie(const struct charsmap *c, struct reason *why)
{
    struct walk w = {.stack = calloc(c->n_units, sizeof *w.stack),
                     .seen = calloc(c->n_units, sizeof *w.seen)};
    enum status s = ST_OK;

    if (w.stack == NULL || w.seen == NULL)
        s = fail(why, ST_NO_MEMORY, "out of memory for the normalizer");
    else
        w.stack[w.n++] = offset_of(c->units[0]);
    while (s == ST_OK && w.n > 0)
        s = visit_children(c, &w, w.stack[--w.n], why);
    free(w.stack);
    free(w.seen);
    return s;
}

static enum status copy_parts(struct charsmap *c, const void *data, size_t len, struct reason *why)
{
    struct reader r;
    size_t bytes;

    reader_init(&r, data, len);
    bytes = reader_u32(&r);
    if (r.failed || bytes == 0 || bytes % sizeof *c->units != 0 || bytes >= reader_left(&r))
        return fail_param(why, ST_CORRUPT, key, "%s: its trie of %zu bytes doesn't fit", key,
                          bytes);
    c->n_units = bytes / sizeof *c->units;
    c->units = calloc(c->n_units, sizeof *c->units);
    for (size_t i = 0; c->units != NULL && i < c->n_units; i++)
        c->units[i] = reader_u32(&r);
    c->texts_len = reader_left(&r);
    c->texts = malloc(c->texts_len);
    if (c->units == NULL || c->texts == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory for the normalizer");
    memcpy(c->texts, reader_bytes(&r, c->texts_len), c->texts_len);
    if (c->texts[c->texts_len - 1] != 0)
        return fail_param(why, ST_CORRUPT, key, "%s: the last replacement has no end", key);
    return ST_OK;
}

enum status charsmap_init(struct charsmap *c, const void *data, size_t len, struct reason *why)
{
    enum status s;

    *c = (struct charsmap){0};
    s = copy_parts(c, data, len, why);
    if (s == ST_OK)
        s = check_trie(c, why);
    if (s != ST_OK)
        charsmap_dispose(c);
    return s;
}

void charsmap_dispose(struct charsmap *c)
{
    free(c->units);
    free(c->texts);
    *c = (struct charsmap){0};
}

bool charsmap_match(const struct charsmap *c, const char *text, size_t len, const char **to,
                    size_t *taken)
{
    uint32_t base;
    bool found = false;

    if (c->units == NULL)
        return false;
    base = offset_of(c->units[0]);
    len = len < KEY_BYTES_MAX ? len : KEY_BYTES_MAX;
    for (size_t i = 0; i < len; i++) {
        size_t at = base ^ (unsigned char)text[i];

        if (text[i] == 0 || at >= c->n_units || label_of(c->units[at]) != (unsigned char)text[i])
            break;
        base = (uint32_t)at ^ offset_of(c->units[at]);
        if (!has_leaf(c->units[at]))
            continue;
        *to = c->texts + value_of(c->units[base]);
        *taken = i + 1;
        found = true;
    }
    return found;
}
