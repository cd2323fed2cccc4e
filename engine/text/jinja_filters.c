/* Filters on text and numbers. */
#include "engine/text/jinja_eval.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_str.h"
#include "engine/text/jinja_tables.h"

static struct jval filter_upper(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_case(j, jinja_str(j, self), CASE_UPPER));
}

static struct jval filter_lower(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_case(j, jinja_str(j, self), CASE_LOWER));
}

static struct jval filter_title(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_title_filter(j, jinja_str(j, self)));
}

static struct jval filter_capitalize(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_case(j, jinja_str(j, self), CASE_CAPITAL));
}

static struct jval filter_trim(struct jinja *j, struct jval self, const struct jval *a)
{
    const struct jstr *chars = NULL;

    if (a[0].type == JT_STRING) {
        chars = a[0].s;
    } else if (a[0].type != JT_MISSING && a[0].type != JT_NONE) {
        jinja_raise(j, "strip arg must be None or str");
        return jv_none();
    }
    return jv_str(jinja_strip(j, jinja_str(j, self), chars, STRIP_LEFT | STRIP_RIGHT));
}

/* str() of markup is plain text. */
static const struct jstr *unmarked(struct jinja *j, const struct jstr *s)
{
    struct jstr *copy = s->markup ? jinja_alloc(j, 1, sizeof *copy) : NULL;

    if (copy == NULL)
        return s;
    *copy = *s;
    copy->markup = false;
    return copy;
}

static struct jval filter_replace(struct jinja *j, struct jval self, const struct jval *a)
{
    int64_t max = -1;

    if (a[2].type != JT_MISSING && a[2].type != JT_NONE) {
        if (!jv_is_integral(a[2])) {
            jinja_raise(j, "replace() needs an integer as count");
            return jv_none();
        }
        max = jv_as_int(a[2]) < 0 ? -1 : jv_as_int(a[2]);
    }
    return jv_str(jinja_replace(j, unmarked(j, jinja_str(j, self)), jinja_str(j, a[0]),
                                jinja_str(j, a[1]), max));
}

static struct jval filter_string(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_str(j, self));
}

static struct jval marked(struct jinja *j, const struct jstr *s)
{
    struct jstr *copy = jinja_alloc(j, 1, sizeof *copy);

    if (copy == NULL)
        return jv_none();
    *copy = *s;
    copy->markup = true;
    copy->tail = NULL; /* appending to it would lose the mark */
    return jv_str(copy);
}

struct jval jinja_filter_safe(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return marked(j, jinja_str(j, self));
}

/* As markupsafe.escape: what is markup already stays. */
struct jval jinja_filter_escape(struct jinja *j, struct jval self, const struct jval *a)
{
    static const char special[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const struct jstr *s = jinja_str(j, self);
    struct jtext t;
    size_t from = 0, end;

    (void)a;
    if (s->markup)
        return jv_str(s);
    jt_init(&t, j);
    for (size_t i = 0; i < s->len && jinja_charge(j, i % 64 == 0); i++) {
        const char *c = s->data[i] == '\0' ? NULL : strchr(special, s->data[i]);

        if (c == NULL)
            continue;
        jt_add_slice(&t, s, from, i);
        jt_add(&t, names[c - special], strlen(names[c - special]), js_origin(s, i, &end));
        from = i + 1;
    }
    jt_add_slice(&t, s, from, s->len);
    return marked(j, jt_finish(&t));
}

static struct jval filter_forceescape(struct jinja *j, struct jval self, const struct jval *a)
{
    return jinja_filter_escape(j, jv_str(unmarked(j, jinja_str(j, self))), a);
}

static struct jval filter_default(struct jinja *j, struct jval self, const struct jval *a)
{
    bool use = self.type == JT_UNDEFINED || (jv_is_true(a[1]) && !jv_is_true(self));

    (void)j;
    if (!use)
        return self;
    return a[0].type == JT_MISSING ? jv_str(&js_empty) : a[0];
}

static struct jval filter_abs(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    if (self.type == JT_FLOAT)
        return jv_float(fabs(self.f));
    if (jv_is_integral(self))
        return jv_as_int(self) < 0 ? jinja_negate(j, self) : jv_int(jv_as_int(self));
    if (self.type == JT_UNDEFINED)
        jinja_raise_undefined(j, self);
    else
        jinja_raise(j, "bad operand type for abs(): '%s'", jv_type_name(self));
    return jv_none();
}

#define NUMBER_TEXT_MAX 400

/* The text of a number without white space around it and single underscores inside; "" if it can't
 * be one. What C's functions would take beyond Python's (hexadecimal floats, "nan(...)") goes too.
 */
static void number_text(struct jinja *j, const struct jstr *s, const char *refused,
                        char out[NUMBER_TEXT_MAX])
{
    size_t n = 0;

    s = jinja_strip(j, s, NULL, STRIP_LEFT | STRIP_RIGHT);
    for (size_t i = 0; i < s->len && s->len < NUMBER_TEXT_MAX; i++) {
        bool between = i > 0 && i + 1 < s->len && s->data[i - 1] != '_' && s->data[i + 1] != '_';

        if (s->data[i] == '_' && between)
            continue;
        if (s->data[i] == '\0' || strchr(refused, s->data[i]) != NULL) {
            n = 0;
            break;
        }
        out[n++] = s->data[i];
    }
    out[n] = '\0';
}

static bool text_to_float(struct jinja *j, const struct jstr *s, double *out)
{
    char text[NUMBER_TEXT_MAX], *end;

    number_text(j, s, "_xXpP( \t\n\v\f\r", text);
    *out = strtod(text, &end);
    return text[0] != '\0' && *end == '\0';
}

static struct jval big_integer(struct jinja *j)
{
    jinja_raise(j, "an integer does not fit 64 bits");
    return jv_none();
}

/* int(text, base), with the prefix that belongs to the base; false: not a number. */
static bool text_to_int(struct jinja *j, const struct jstr *s, int base, int64_t *out)
{
    char text[NUMBER_TEXT_MAX], *digits = text, *end;
    char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '0';
    bool negative;

    number_text(j, s, "_ \t\n\v\f\r", text);
    negative = *digits == '-';
    if (*digits == '-' || *digits == '+')
        digits++;
    if (base != 10 && digits[0] == '0' && (digits[1] | 0x20) == prefix)
        digits += 2;
    if (*digits == '-' || *digits == '+' || *digits == '\0')
        return false;
    *(digits - (negative ? 1 : 0)) = negative ? '-' : *digits;
    errno = 0;
    *out = strtoll(digits - (negative ? 1 : 0), &end, base);
    if (*end == '\0' && errno == ERANGE)
        big_integer(j);
    return *end == '\0';
}

/* int(f); false: infinite or not a number. */
static bool float_to_int(struct jinja *j, double f, int64_t *out)
{
    if (isnan(f) || isinf(f))
        return false;
    *out = 0;
    /* 2^63 as a double: the first one that does not fit. */
    if (f >= 9223372036854775808.0 || f < -9223372036854775808.0)
        big_integer(j);
    else
        *out = (int64_t)f;
    return true;
}

static struct jval filter_int(struct jinja *j, struct jval self, const struct jval *a)
{
    int base = a[1].type == JT_INT && a[1].i >= 2 && a[1].i <= 36 ? (int)a[1].i : 10;
    int64_t i = 0;
    double f;

    if (self.type == JT_UNDEFINED) {
        jinja_raise_undefined(j, self);
        return jv_none();
    }
    if (jv_is_integral(self))
        return jv_int(jv_as_int(self));
    if (self.type == JT_FLOAT && isinf(self.f))
        return big_integer(j);
    if (self.type == JT_FLOAT && float_to_int(j, self.f, &i))
        return jv_int(i);
    if (self.type == JT_STRING && text_to_int(j, self.s, base, &i))
        return jv_int(i);
    if (self.type == JT_STRING && text_to_float(j, self.s, &f) && float_to_int(j, f, &i))
        return jv_int(i);
    return a[0].type == JT_MISSING ? jv_int(0) : a[0];
}

static struct jval filter_float(struct jinja *j, struct jval self, const struct jval *a)
{
    double f;

    if (self.type == JT_UNDEFINED) {
        jinja_raise_undefined(j, self);
        return jv_none();
    }
    if (jv_is_number(self))
        return jv_float(jv_as_float(self));
    if (self.type == JT_STRING && text_to_float(j, self.s, &f))
        return jv_float(f);
    return a[0].type == JT_MISSING ? jv_float(0) : a[0];
}

/* Correctly rounded, because printf is: ties go by the double's exact value. */
static double round_decimal(double f, int precision)
{
    char text[NUMBER_TEXT_MAX];
    double scale;

    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", precision > 20 ? 20 : precision, f);
        return strtod(text, NULL);
    }
    scale = pow(10, -precision);
    return isinf(scale) ? 0 : nearbyint(f / scale) * scale;
}

static bool round_method(struct jinja *j, struct jval v, char *out)
{
    static const char *const methods[] = {"common", "ceil", "floor"};

    for (size_t i = 0; v.type == JT_STRING && i < COUNT_OF(methods); i++) {
        if (js_is(v.s, methods[i])) {
            *out = methods[i][1]; /* 'o', 'e' or 'l' */
            return true;
        }
    }
    jinja_raise(j, "method must be common, ceil or floor");
    return false;
}

static struct jval filter_round(struct jinja *j, struct jval self, const struct jval *a)
{
    int64_t precision = a[0].type == JT_INT ? a[0].i : 0;
    char method = 'o';
    double scale, scaled;

    if (a[1].type != JT_MISSING && !round_method(j, a[1], &method))
        return jv_none();
    if (self.type == JT_UNDEFINED) {
        jinja_raise_undefined(j, self);
        return jv_none();
    }
    if (!jv_is_number(self) || precision > 300 || precision < -300) {
        jinja_raise(j, "type %s doesn't define __round__ method", jv_type_name(self));
        return jv_none();
    }
    if (method == 'o' && jv_is_integral(self) && precision >= 0)
        return jv_int(jv_as_int(self));
    if (method == 'o') {
        double r = round_decimal(jv_as_float(self), (int)precision);

        return jv_is_integral(self) ? jv_int((int64_t)r) : jv_float(r);
    }
    scale = pow(10, (double)precision);
    scaled = jv_as_float(self) * scale;
    /* Python's ceil and floor give an integer, which has no negative zero. */
    return jv_float(((method == 'e' ? ceil(scaled) : floor(scaled)) + 0.0) / scale);
}

/* What lines are indented by: n spaces or a text. */
static const struct jstr *indention(struct jinja *j, struct jval width)
{
    struct jval space = jv_str(js_new(j, " ", 1, true));

    if (width.type == JT_STRING)
        return width.s;
    if (width.type == JT_MISSING)
        width = jv_int(4);
    space = jinja_binary(j, TOK_MUL, space, width);
    return space.type == JT_STRING ? space.s : &js_empty;
}

/* a: width, first, blank. As Jinja: lines of the text with a newline added, joined again. */
static struct jval filter_indent(struct jinja *j, struct jval self, const struct jval *a)
{
    const struct jstr *by = indention(j, a[0]), *newline = js_new(j, "\n", 1, true);
    struct jval with_end = jinja_binary(j, TOK_ADD, self, jv_str(newline));
    struct jseq *lines;
    struct jtext t;

    if (with_end.type != JT_STRING || j->status != ST_OK)
        return jv_none();
    lines = jinja_splitlines(j, with_end.s, false);
    jt_init(&t, j);
    if (jv_is_true(a[1]))
        jt_add_str(&t, by);
    for (size_t i = 0; lines != NULL && i < lines->n && jinja_charge(j, 1); i++) {
        if (i != 0)
            jt_add_str(&t, newline);
        if (i != 0 && (jv_is_true(a[2]) || lines->items[i].s->len != 0))
            jt_add_str(&t, by);
        jt_add_str(&t, lines->items[i].s);
    }
    return jv_str(jt_finish(&t));
}

static const struct jfunc filters[] = {
    {"upper", "", filter_upper, NULL},
    {"lower", "", filter_lower, NULL},
    {"title", "", filter_title, NULL},
    {"capitalize", "", filter_capitalize, NULL},
    {"trim", "chars?", filter_trim, NULL},
    {"replace", "old new count?", filter_replace, NULL},
    {"string", "", filter_string, NULL},
    {"safe", "", jinja_filter_safe, NULL},
    {"escape", "", jinja_filter_escape, NULL},
    {"e", "", jinja_filter_escape, NULL},
    {"forceescape", "", filter_forceescape, NULL},
    {"default", "default_value? boolean?", filter_default, NULL},
    {"d", "default_value? boolean?", filter_default, NULL},
    {"abs", "", filter_abs, NULL},
    {"int", "default? base?", filter_int, NULL},
    {"float", "default?", filter_float, NULL},
    {"round", "precision? method?", filter_round, NULL},
    {"indent", "width? first? blank?", filter_indent, NULL},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", jinja_filter_tojson, NULL},
};

const struct jfunc *jinja_text_filter(const char *name)
{
    return jinja_lookup(filters, COUNT_OF(filters), name);
}

const struct jfunc *jinja_filter(const char *name)
{
    const struct jfunc *f = jinja_text_filter(name);

    return f != NULL ? f : jinja_seq_filter(name);
}
