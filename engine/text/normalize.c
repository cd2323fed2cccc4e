#include "engine/text/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/size.h"
#include "base/utf8.h"

/* Code points that one character's canonical decomposition may have (Unicode 15: four), and room to
 * spare. */
#define DECOMPOSED_MAX 8

/* The lead byte of U+0300; no character below it composes, decomposes within C, or is reordered. */
#define FIRST_LEAD 0xCC

bool normalize_is_plain(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= FIRST_LEAD)
            return false;
    return true;
}

struct codepoints {
    int32_t *at;
    size_t n, cap;
};

static bool reserve(struct codepoints *c, size_t extra)
{
    size_t cap = c->cap > 0 ? c->cap : 64, bytes;
    int32_t *grown;

    if (c->cap - c->n >= extra)
        return true;
    while (cap - c->n < extra)
        if (!size_mul(cap, 2, &cap))
            return false;
    if (!size_mul(cap, sizeof *grown, &bytes))
        return false;
    grown = realloc(c->at, bytes);
    if (grown == NULL)
        return false;
    c->at = grown;
    c->cap = cap;
    return true;
}

static bool decompose(const char *text, size_t len, struct codepoints *out)
{
    for (size_t i = 0; i < len;) {
        int boundary = 0, bytes;
        utf8proc_ssize_t n;
        uint32_t cp = 0;

        bytes = utf8_decode(text + i, len - i, &cp);
        if (bytes <= 0 || !reserve(out, DECOMPOSED_MAX))
            return false;
        n = utf8proc_decompose_char((utf8proc_int32_t)cp, out->at + out->n, DECOMPOSED_MAX,
                                    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
        if (n < 0 || n > DECOMPOSED_MAX)
            return false;
        out->n += (size_t)n;
        i += (size_t)bytes;
    }
    return true;
}

static int combining_class(int32_t cp)
{
    return utf8proc_get_property(cp)->combining_class;
}

/* Marks by class, those of one class in their order: a counting sort, since utf8proc's own takes
 * quadratic time for a long run. */
static bool sort_marks(int32_t *at, size_t n)
{
    size_t first[256 + 1] = {0};
    int32_t *sorted;

    if (n < 2)
        return true;
    sorted = malloc(n * sizeof *sorted);
    if (sorted == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        first[combining_class(at[i]) + 1]++;
    for (size_t k = 1; k < COUNT_OF(first); k++)
        first[k] += first[k - 1];
    for (size_t i = 0; i < n; i++)
        sorted[first[combining_class(at[i])]++] = at[i];
    memcpy(at, sorted, n * sizeof *sorted);
    free(sorted);
    return true;
}

/* Two marks, the usual case, need no sorting by counting. */
static bool order_run(int32_t *at, size_t n)
{
    if (n == 2) {
        if (combining_class(at[0]) > combining_class(at[1])) {
            int32_t first = at[0];

            at[0] = at[1];
            at[1] = first;
        }
        return true;
    }
    return sort_marks(at, n);
}

static bool order(struct codepoints *c)
{
    for (size_t i = 0; i < c->n;) {
        size_t end = i;

        while (end < c->n && combining_class(c->at[end]) != 0)
            end++;
        if (!order_run(c->at + i, end - i))
            return false;
        i = end + 1;
    }
    return true;
}

enum status normalize_nfd(const char *text, size_t len, int32_t **out, size_t *n)
{
    struct codepoints c = {0};

    if (!decompose(text, len, &c) || !order(&c)) {
        free(c.at);
        return ST_NO_MEMORY;
    }
    *out = c.at;
    *n = c.n;
    return ST_OK;
}

static enum status compose(const char *text, size_t len, struct buf *out)
{
    utf8proc_ssize_t composed;
    int32_t *cps = NULL;
    size_t n = 0;
    enum status s = normalize_nfd(text, len, &cps, &n);

    if (s != ST_OK || cps == NULL)
        return s;
    composed =
        utf8proc_normalize_utf32(cps, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[4];

        buf_append(out, bytes, utf8_encode((uint32_t)cps[i], bytes));
    }
    free(cps);
    return composed < 0 ? ST_NO_MEMORY : ST_OK;
}

/* Most of what is written: Latin, general punctuation, ideographs and Hangul, full-width forms.
 * They begin a character of their own and stay as they are, but for marks (or jamo) behind the
 * last. */
static bool is_stable(uint32_t cp)
{
    return cp < 0x300 || (cp >= 0x2010 && cp <= 0x2027) || (cp >= 0x3001 && cp <= 0x3029) ||
           (cp >= 0x3400 && cp <= 0xA48C) || (cp >= 0xAC00 && cp <= 0xD7A3) ||
           (cp >= 0xFF01 && cp <= 0xFF60);
}

/* Length of the stable characters at text; *last is where the last of them begins. */
static size_t stable_length(const char *text, size_t len, size_t *last)
{
    size_t at = 0;

    *last = 0;
    while (at < len) {
        uint32_t cp = (unsigned char)text[at];
        size_t n = cp < 0x80 ? 1 : (size_t)utf8_decode(text + at, len - at, &cp);

        if (!is_stable(cp))
            break;
        *last = at;
        at += n;
    }
    return at;
}

static size_t unstable_length(const char *text, size_t len)
{
    size_t at = 0;

    while (at < len) {
        uint32_t cp = 0;
        size_t n = (size_t)utf8_decode(text + at, len - at, &cp);

        if (is_stable(cp))
            break;
        at += n;
    }
    return at;
}

enum status normalize_nfc(const char *text, size_t len, struct buf *out)
{
    enum status s = ST_OK;

    while (len > 0 && s == ST_OK) {
        size_t last, end = stable_length(text, len, &last);
        size_t keep = end == len ? len : last, n = len - keep;

        buf_append(out, text, keep);
        if (end < len) {
            n = end - last + unstable_length(text + end, len - end);
            s = compose(text + last, n, out);
        }
        text += keep + n;
        len -= keep + n;
    }
    return s == ST_OK && out->failed ? ST_NO_MEMORY : s;
}
