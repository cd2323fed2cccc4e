#include "api/speller.h"

#include <string.h>

#include "base/utf8.h"

static void put(struct speller *s, const char *character, size_t len, struct buf *out)
{
    s->n_chars++;
    if (out != NULL)
        buf_append(out, character, len);
}

static void put_replacement(struct speller *s, struct buf *out)
{
    put(s, "\xEF\xBF\xBD", 3, out);
}

/* A beginning is kept, a character goes out, and what is neither is replaced. */
static void add_byte(struct speller *s, char byte, struct buf *out)
{
    char window[SPELLER_TAIL_MAX + 1];
    size_t len = s->n_tail;
    int n;

    memcpy(window, s->tail, len);
    window[len++] = byte;
    n = utf8_decode(window, len, NULL);
    if (n == 0 && s->n_tail > 0) { /* it begins something else */
        speller_end(s, out);
        add_byte(s, byte, out);
        return;
    }
    s->n_tail = 0;
    if (n > 0) {
        put(s, window, len, out);
    } else if (n == 0) {
        put_replacement(s, out);
    } else {
        memcpy(s->tail, window, len);
        s->n_tail = len;
    }
}

static bool continues(const struct speller *s, char byte)
{
    char window[SPELLER_TAIL_MAX + 1];

    memcpy(window, s->tail, s->n_tail);
    window[s->n_tail] = byte;
    return utf8_decode(window, s->n_tail + 1, NULL) != 0;
}

int64_t speller_add(struct speller *s, const char *bytes, size_t len, struct buf *out)
{
    int64_t offset;

    if (len > 0 && !continues(s, bytes[0]))
        speller_end(s, out);
    offset = s->n_chars;
    for (size_t i = 0; i < len; i++)
        add_byte(s, bytes[i], out);
    return offset;
}

void speller_end(struct speller *s, struct buf *out)
{
    if (s->n_tail > 0)
        put_replacement(s, out);
    s->n_tail = 0;
}
