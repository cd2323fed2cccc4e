#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define WORD_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

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

/* Past the string that begins at `from`, behind its quote: at the closing one, or `end`. */
static size_t skip_string(const char *text, size_t from, size_t end)
{
    while (from < end && text[from] != '"')
        from += text[from] == '\\' ? 2 : 1;
    return from < end ? from : end;
}

/* The last member of the top object that has begun before `end`, up to where the text is JSON; ""
 * where it has none, or one whose name is no plain word. */
static void name_member(const char *text, size_t end, char *out, size_t cap)
{
    int depth = 0;

    out[0] = '\0';
    for (size_t i = 0; i < end; i++) {
        const size_t from = i + 1;
        size_t len;

        depth += text[i] == '{' || text[i] == '[';
        depth -= text[i] == '}' || text[i] == ']';
        if (text[i] != '"')
            continue;
        i = skip_string(text, from, end);
        len = i - from;
        if (depth != 1 || i + 1 >= end || text[i + 1 + strspn(text + i + 1, " \t\r\n")] != ':')
            continue;
        if (strspn(text + from, WORD_CHARS) < len)
            len = 0;
        snprintf(out, cap, "%.*s", (int)(len < cap ? len : 0), text + from);
    }
}

static enum status explain(const json_error_t *err, const char *text, size_t len,
                           struct reason *why)
{
    const char *what = "is malformed";
    const enum json_error_code code = json_error_code(err);
    const size_t at = err->position > 0 ? (size_t)err->position : 0;
    char member[sizeof why->param] = "";

    if (code == json_error_duplicate_key)
        what = "has a key twice";
    else if (code == json_error_null_character)
        what = "has a NUL character";
    else if (code == json_error_numeric_overflow)
        what = "has a number that is too large";
    if (code == json_error_numeric_overflow)
        name_member(text, at < len ? at : len, member, sizeof member);
    return fail_param(why, ST_INVALID, member, "The JSON text %s (line %d, column %d).", what,
                      err->line, err->column);
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
    if (doc == NULL)
        return explain(&err, text, len, why);
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
