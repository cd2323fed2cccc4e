/* Values as Python prints them: str() and repr(). Text made here counts as values', except that
 * str() of a string is the string. */
#include "engine/text/jinja_eval.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"

static void put(struct jtext *t, const char *s)
{
    jt_add(t, s, strlen(s), false);
}

/* Fewest digits that read back as f: d.ddde±xx. */
static void shortest(double f, char out[JINJA_FLOAT_BYTES])
{
    for (int digits = 0; digits < 17; digits++) {
        snprintf(out, JINJA_FLOAT_BYTES, "%.*e", digits, f);
        if (strtod(out, NULL) == f)
            return;
    }
}

/* Writes digits (n of them, the first worth 10^exp) without an exponent. */
static void positional(const char *digits, int n, int exp, char *out)
{
    int len = 0;

    if (exp < 0) {
        out[len++] = '0';
        out[len++] = '.';
        for (int i = -1; i > exp; i--)
            out[len++] = '0';
    }
    for (int i = 0; i < n || i <= exp; i++) {
        if (exp >= 0 && i == exp + 1)
            out[len++] = '.';
        out[len++] = i < n ? digits[i] : '0';
    }
    if (exp >= n - 1) {
        out[len++] = '.';
        out[len++] = '0';
    }
    out[len] = '\0';
}

void jinja_float_repr(double f, char out[JINJA_FLOAT_BYTES])
{
    char text[JINJA_FLOAT_BYTES], digits[24];
    int n = 0, exp;

    if (isnan(f) || isinf(f)) {
        snprintf(out, JINJA_FLOAT_BYTES, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    if (signbit(f))
        *out++ = '-';
    shortest(fabs(f), text);
    for (const char *p = text; *p != 'e'; p++) {
        if (*p != '.')
            digits[n++] = *p;
    }
    exp = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exp >= -4 && exp < 16)
        positional(digits, n, exp, out);
    else
        memcpy(out, text, strlen(text) + 1);
}

static bool is_printable(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return cp == ' ';
    default:
        return true;
    }
}

static void repr_char(struct jtext *t, uint32_t cp, char quote)
{
    char text[16];

    if (cp == (unsigned char)quote || cp == '\\')
        snprintf(text, sizeof text, "\\%c", (char)cp);
    else if (cp == '\n' || cp == '\r' || cp == '\t')
        snprintf(text, sizeof text, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    else if (is_printable(cp))
        text[utf8_encode(cp, text)] = '\0';
    else if (cp < 0x100)
        snprintf(text, sizeof text, "\\x%02x", cp);
    else
        snprintf(text, sizeof text, cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    put(t, text);
}

static void repr_string(struct jtext *t, const struct jstr *s)
{
    bool single = memchr(s->data, '\'', s->len) != NULL;
    bool both = single && memchr(s->data, '"', s->len) != NULL;
    char quote = single && !both ? '"' : '\'';

    if (s->markup)
        put(t, "Markup(");
    jt_add(t, &quote, 1, false);
    for (size_t pos = 0; pos < s->len && jinja_charge(t->j, pos % 16 == 0);) {
        uint32_t cp = 0;

        pos += (size_t)utf8_decode(s->data + pos, s->len - pos, &cp);
        repr_char(t, cp, quote);
    }
    jt_add(t, &quote, 1, false);
    if (s->markup)
        put(t, ")");
}

static void repr_range(struct jtext *t, const struct jseq *s)
{
    char text[80];
    int n = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, s->start, s->stop);

    if (s->step != 1)
        snprintf(text + n, sizeof text - (size_t)n, ", %" PRId64 ")", s->step);
    else
        snprintf(text + n, sizeof text - (size_t)n, ")");
    put(t, text);
}

static void repr_seq(struct jtext *t, const struct jseq *s)
{
    static const struct {
        const char *open, *close;
    } marks[] = {
        [SEQ_LIST] = {"[", "]"},
        [SEQ_TUPLE] = {"(", ")"},
        [SEQ_ITEMS] = {"dict_items([", "])"},
        [SEQ_KEYS] = {"dict_keys([", "])"},
        [SEQ_VALUES] = {"dict_values([", "])"},
    };

    if (s->kind == SEQ_RANGE) {
        repr_range(t, s);
        return;
    }
    if (s->kind == SEQ_GENERATOR) {
        put(t, "<generator object>"); /* Python adds an address */
        return;
    }
    put(t, marks[s->kind].open);
    for (size_t i = 0; i < s->n && t->j->status == ST_OK; i++) {
        if (i != 0)
            put(t, ", ");
        jinja_add_repr(t, s->items[i]);
    }
    if (s->kind == SEQ_TUPLE && s->n == 1)
        put(t, ",");
    put(t, marks[s->kind].close);
}

static void repr_dict(struct jtext *t, const struct jdict *d)
{
    put(t, "{");
    for (size_t i = 0; i < d->n && t->j->status == ST_OK; i++) {
        if (i != 0)
            put(t, ", ");
        jinja_add_repr(t, d->keys[i]);
        put(t, ": ");
        jinja_add_repr(t, d->values[i]);
    }
    put(t, "}");
}

static void repr_number(struct jtext *t, struct jval v)
{
    char text[JINJA_FLOAT_BYTES];

    if (v.type == JT_FLOAT)
        jinja_float_repr(v.f, text);
    else
        snprintf(text, sizeof text, "%" PRId64, v.i);
    put(t, text);
}

static void repr_loop(struct jtext *t, const struct jloop *loop)
{
    char text[64];

    snprintf(text, sizeof text, "<LoopContext %zu/%zu>", loop->i + 1, loop->n);
    put(t, text);
}

static void repr_any(struct jtext *t, struct jval v)
{
    switch (v.type) {
    case JT_NONE:
        put(t, "None");
        break;
    case JT_BOOL:
        put(t, v.b ? "True" : "False");
        break;
    case JT_INT:
    case JT_FLOAT:
        repr_number(t, v);
        break;
    case JT_STRING:
        repr_string(t, v.s);
        break;
    case JT_SEQ:
        repr_seq(t, v.seq);
        break;
    case JT_DICT:
        repr_dict(t, v.dict);
        break;
    case JT_NAMESPACE:
        put(t, "<Namespace ");
        repr_dict(t, v.dict);
        put(t, ">");
        break;
    case JT_LOOP:
        repr_loop(t, v.loop);
        break;
    case JT_MACRO:
        put(t, "<Macro '");
        put(t, v.macro->stmt->macro.name);
        put(t, "'>");
        break;
    case JT_MISSING:
    case JT_UNDEFINED:
        put(t, "Undefined");
        break;
    default:
        put(t, "<");
        put(t, jv_type_name(v));
        put(t, ">");
        break;
    }
}

void jinja_add_repr(struct jtext *t, struct jval v)
{
    if (!jinja_enter_value(t->j))
        return;
    repr_any(t, v);
    jinja_leave_value(t->j);
}

void jinja_add_str(struct jtext *t, struct jval v)
{
    if (v.type == JT_STRING)
        jt_add_str(t, v.s);
    else if (v.type != JT_UNDEFINED && v.type != JT_MISSING)
        jinja_add_repr(t, v);
}

const struct jstr *jinja_str(struct jinja *j, struct jval v)
{
    struct jtext t;

    if (v.type == JT_STRING)
        return v.s;
    jt_init(&t, j);
    jinja_add_str(&t, v);
    return jt_finish(&t);
}
