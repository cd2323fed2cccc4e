/* Number and string literals. */
#include "engine/text/jinja_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_run.h"

/* Copies a number's digits without its underscores; "" when it doesn't fit. */
static void plain_digits(const struct token *t, char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < t->len && n + 1 < cap; i++) {
        if (t->text[i] != '_')
            out[n++] = t->text[i];
    }
    out[n + 1 < cap ? n : 0] = '\0';
}

struct expr *parse_number(struct parser *p)
{
    static const char prefixes[] = "bBoOxX";
    static const int bases[] = {2, 2, 8, 8, 16, 16};
    char text[256];
    struct jval v;
    int base = 10;

    plain_digits(&p->cur, text, sizeof text);
    errno = 0;
    if (p->cur.type == TOK_FLOAT) {
        v = jv_float(strtod(text, NULL));
    } else {
        const char *prefix = text[0] == '0' && text[1] != '\0' ? strchr(prefixes, text[1]) : NULL;

        if (prefix != NULL)
            base = bases[prefix - prefixes];
        v = jv_int(strtoll(base == 10 ? text : text + 2, NULL, base));
        if (errno == ERANGE || text[0] == '\0')
            parser_refuse(p, "integer of more than 64 bits", "");
    }
    parser_advance(p);
    return parser_constant(p, v);
}

/* The code point of \ooo, \xhh, \uhhhh or \Uhhhhhhhh at s[0]; *used its length. */
static long escape_number(const char *s, size_t len, size_t *used)
{
    size_t want = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0, n = 0;
    int base = want != 0 ? 16 : 8;
    char digits[9] = "";
    size_t from = want != 0 ? 1 : 0;

    while (from + n < len && n < (want != 0 ? want : 3) && s[from + n] != '\0' &&
           strchr(base == 16 ? "0123456789abcdefABCDEF" : "01234567", s[from + n]) != NULL) {
        digits[n] = s[from + n];
        n++;
    }
    *used = from + n;
    return want != 0 && n != want ? -1 : strtol(digits, NULL, base);
}

/* One escape after the backslash at s; appends to out. Returns the bytes used. */
static size_t unescape_one(struct parser *p, const char *s, size_t len, char *out, size_t *n)
{
    static const char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = memchr(names, s[0], sizeof names - 1);
    size_t used;
    long cp;

    if (s[0] == '\n')
        return 1;
    if (simple != NULL) {
        out[(*n)++] = values[simple - names];
        return 1;
    }
    if (s[0] == 'N')
        parser_refuse(p, "escape", "\\N");
    if (s[0] == '\0' || strchr("xuU01234567", s[0]) == NULL) {
        out[(*n)++] = '\\'; /* an unknown escape stays as it is, as in Python */
        return 0;
    }
    cp = escape_number(s, len, &used);
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        parser_fail(p, ST_INVALID, "has a bad escape in a string");
    else
        *n += utf8_encode((uint32_t)cp, out + *n);
    return used;
}

/* Appends the string token's value to out; no escape is shorter than its value. */
static void unescape(struct parser *p, const struct token *t, char *out, size_t *n)
{
    for (size_t i = 0; i < t->len && p->status == ST_OK;) {
        if (t->text[i] != '\\') {
            out[(*n)++] = t->text[i++];
            continue;
        }
        i++;
        i += unescape_one(p, t->text + i, t->len - i, out, n);
    }
}

struct expr *parse_string(struct parser *p)
{
    size_t n = 0, total = 0;
    char *text = NULL;
    struct jstr *s;

    while (p->cur.type == TOK_STRING) {
        char *longer = parser_alloc(p, total + p->cur.len + 1, 1);

        if (longer == NULL)
            return parser_constant(p, jv_none());
        if (n != 0)
            memcpy(longer, text, n);
        total += p->cur.len;
        text = longer;
        unescape(p, &p->cur, text, &n);
        parser_advance(p);
    }
    s = parser_alloc(p, 1, sizeof *s);
    if (s == NULL)
        return parser_constant(p, jv_none());
    *s = js_of(text, n, true);
    return parser_constant(p, jv_str(s));
}
