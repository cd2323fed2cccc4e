#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define NUMBER_CHARS "0123456789+-.eE"

/* Walks the text once, outside strings counting brackets, and refuses depth before jansson recurses
 * into anything. */
static enum status scan(const char *text, size_t len, int depth_max, struct reason *why)
{
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        if (c == '"')
            in_string = true;
        else if ((c == '{' || c == '[') && ++depth > depth_max)
            return fail(why, ST_INVALID, "The JSON text is nested deeper than %d levels.",
                        depth_max);
        else if (c == '}' || c == ']')
            depth--;
    }
    return ST_OK;
}

static enum status explain(const json_error_t *err, struct reason *why)
{
    const char *what = "is malformed";
    const enum json_error_code code = json_error_code(err);

    if (code == json_error_duplicate_key)
        what = "has a key twice";
    else if (code == json_error_null_character)
        what = "has a NUL character";
    else if (code == json_error_numeric_overflow)
        what = "has a number that is too large";
    return fail(why, ST_INVALID, "The JSON text %s (line %d, column %d).", what, err->line,
                err->column);
}

/* What we refuse before jansson sees it. */
static enum status check(const char *text, size_t len, int depth_max, struct reason *why)
{
    if (len == 0)
        return fail(why, ST_INVALID, "The JSON text is empty.");
    if (memchr(text, '\0', len) != NULL)
        return fail(why, ST_INVALID, "The JSON text contains a NUL byte.");
    if (!utf8_is_valid(text, len))
        return fail(why, ST_INVALID, "The JSON text is not valid UTF-8.");
    return scan(text, len, depth_max, why);
}

enum status json_parse(const char *text, size_t len, int depth_max, json_t **out,
                       struct reason *why)
{
    json_error_t err;
    json_t *doc;
    enum status s = check(text, len, depth_max, why);

    if (s != ST_OK)
        return s;
    doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
    if (doc == NULL)
        return explain(&err, why);
    *out = doc;
    return ST_OK;
}

/* ---- numbers too large ---- */

/* What a number too large becomes. The shortest of those has as many bytes. */
static const char huge[] = {'1', 'e', '3', '0', '8'};

/* Whether these n bytes are one number (strtod takes all of them) that jansson refuses for its size
 * alone. */
static bool is_too_large(const char *number, size_t n)
{
    json_error_t err;
    json_t *v;
    char *end;

    if (n < sizeof huge + (number[0] == '-'))
        return false;
    (void)strtod(number, &end);
    if (end != number + n)
        return false;
    v = json_loadb(number, n, JSON_DECODE_ANY, &err);
    json_decref(v);
    return v == NULL && json_error_code(&err) == json_error_numeric_overflow;
}

/* Past the string that begins at `from`, behind its quote: at the closing one, or `end`. */
static size_t skip_string(const char *text, size_t from, size_t end)
{
    while (from < end && text[from] != '"')
        from += text[from] == '\\' ? 2 : 1;
    return from < end ? from : end;
}

/* In place: blanks may follow a number. */
static void cap_numbers(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const size_t n = strspn(text + i, NUMBER_CHARS);

        if (text[i] == '"')
            i = skip_string(text, i + 1, len);
        if (n == 0)
            continue;
        if (is_too_large(text + i, n)) {
            const size_t sign = text[i] == '-';

            memset(text + i + sign, ' ', n - sign);
            memcpy(text + i + sign, huge, sizeof huge);
        }
        i += n - 1;
    }
}

static enum status parse_capped(const char *text, size_t len, json_t **out, struct reason *why)
{
    json_error_t err;
    char *copy = strndup(text, len); /* check() let no NUL pass */

    if (copy == NULL)
        return fail(why, ST_NO_MEMORY, "No memory for %zu bytes of JSON.", len);
    cap_numbers(copy, len);
    *out = json_loadb(copy, len, JSON_REJECT_DUPLICATES, &err);
    free(copy);
    return *out != NULL ? ST_OK : explain(&err, why);
}

enum status json_parse_huge(const char *text, size_t len, int depth_max, json_t **out,
                            struct reason *why)
{
    json_error_t err;
    json_t *doc;
    enum status s = check(text, len, depth_max, why);

    if (s != ST_OK)
        return s;
    doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
    if (doc == NULL && json_error_code(&err) == json_error_numeric_overflow)
        s = parse_capped(text, len, &doc, why);
    else if (doc == NULL)
        s = explain(&err, why);
    if (s == ST_OK)
        *out = doc;
    return s;
}

bool json_has_huge(const json_t *v)
{
    const char *key;
    const json_t *one;
    size_t i;
    bool found = json_is_real(v) && fabs(json_real_value(v)) >= JSON_HUGE;

    json_array_foreach(v, i, one) found = found || json_has_huge(one);
    json_object_foreach((json_t *)v, key, one) found = found || json_has_huge(one);
    return found;
}

static const char *short_escape(char c)
{
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    default:
        return NULL;
    }
}

static bool needs_number(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7F;
}

size_t json_chars_len(const char *s, size_t len)
{
    size_t n = len;

    for (size_t i = 0; i < len; i++)
        if (short_escape(s[i]) != NULL)
            n += 1;
        else if (needs_number(s[i]))
            n += sizeof "\\u0000" - 2;
    return n;
}

void json_put_chars(struct buf *b, const char *s, size_t len)
{
    size_t from = 0;

    for (size_t i = 0; i < len; i++) {
        const char *esc = short_escape(s[i]);

        if (esc == NULL && !needs_number(s[i]))
            continue;
        buf_append(b, s + from, i - from);
        if (esc != NULL)
            buf_puts(b, esc);
        else
            buf_printf(b, "\\u%04x", (unsigned)(unsigned char)s[i]);
        from = i + 1;
    }
    buf_append(b, s + from, len - from);
}

void json_put_string(struct buf *b, const char *s, size_t len)
{
    buf_putc(b, '"');
    json_put_chars(b, s, len);
    buf_putc(b, '"');
}

void json_put_cstr(struct buf *b, const char *s)
{
    json_put_string(b, s, strlen(s));
}

void json_put_int(struct buf *b, int64_t v)
{
    buf_printf(b, "%" PRId64, v);
}
