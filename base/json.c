#include "base/json.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

/* Walks the text once, outside strings counting brackets, and refuses depth and NUL before jansson
 * recurses into anything. */
static enum status scan(const char *text, size_t len, int depth_max, struct reason *why)
{
    bool in_string = false;
    int depth = 0;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (c == '\0')
            return fail(why, ST_INVALID, "The JSON text contains a NUL byte.");
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

enum status json_parse(const char *text, size_t len, int depth_max, json_t **out,
                       struct reason *why)
{
    json_error_t err;
    json_t *doc;
    enum status s;

    if (len == 0)
        return fail(why, ST_INVALID, "The JSON text is empty.");
    if (!utf8_is_valid(text, len))
        return fail(why, ST_INVALID, "The JSON text is not valid UTF-8.");
    s = scan(text, len, depth_max, why);
    if (s != ST_OK)
        return s;
    doc = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
    if (doc == NULL) {
        if (json_error_code(&err) == json_error_duplicate_key)
            return fail(why, ST_INVALID, "The JSON text has a key twice (line %d, column %d).",
                        err.line, err.column);
        if (json_error_code(&err) == json_error_null_character)
            return fail(why, ST_INVALID, "The JSON text has a NUL character (line %d, column %d).",
                        err.line, err.column);
        return fail(why, ST_INVALID, "The text is not valid JSON (line %d, column %d).", err.line,
                    err.column);
    }
    *out = doc;
    return ST_OK;
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
