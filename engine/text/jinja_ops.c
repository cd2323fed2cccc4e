/* Operators: Python's arithmetic on 64-bit integers (an overflow is an error, never a wrap),
 * comparisons and `in`. */
#include "engine/text/jinja_eval.h"

#include <math.h>
#include <string.h>

static struct jval overflow(struct jinja *j)
{
    jinja_raise(j, "an integer does not fit 64 bits");
    return jv_none();
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;

    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static struct jval int_power(struct jinja *j, int64_t base, int64_t exp)
{
    int64_t r = 1;

    if (exp < 0)
        return jv_float(pow((double)base, (double)exp));
    for (;;) {
        if ((exp & 1) != 0 && __builtin_mul_overflow(r, base, &r))
            return overflow(j);
        exp >>= 1;
        if (exp == 0)
            return jv_int(r);
        if (__builtin_mul_overflow(base, base, &base))
            return overflow(j);
    }
}

static struct jval int_op(struct jinja *j, enum token_type op, int64_t a, int64_t b)
{
    int64_t r = 0;

    if (b == -1 && (op == TOK_FLOORDIV || op == TOK_MOD)) /* INT64_MIN / -1 traps */
        return op == TOK_MOD ? jv_int(0) : jinja_negate(j, jv_int(a));
    switch (op) {
    case TOK_ADD:
        return __builtin_add_overflow(a, b, &r) ? overflow(j) : jv_int(r);
    case TOK_SUB:
        return __builtin_sub_overflow(a, b, &r) ? overflow(j) : jv_int(r);
    case TOK_MUL:
        return __builtin_mul_overflow(a, b, &r) ? overflow(j) : jv_int(r);
    case TOK_DIV:
        return jv_float((double)a / (double)b);
    case TOK_FLOORDIV:
        return jv_int(floor_div(a, b));
    case TOK_MOD:
        return jv_int(a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b);
    default:
        return int_power(j, a, b);
    }
}

static double float_mod(double a, double b)
{
    double m = fmod(a, b);

    if (m == 0)
        return copysign(0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

/* As CPython's float_floor_div, signs of zero included. */
static double float_floor_div(double a, double b)
{
    double mod = fmod(a, b), div = (a - mod) / b, whole;

    if (mod != 0 && (b < 0) != (mod < 0))
        div -= 1;
    if (div == 0)
        return copysign(0, a / b);
    whole = floor(div);
    return div - whole > 0.5 ? whole + 1 : whole;
}

static struct jval float_power(struct jinja *j, double a, double b)
{
    double r;

    if (a < 0 && floor(b) != b) {
        jinja_raise(j, "complex numbers are not supported");
        return jv_none();
    }
    r = pow(a, b);
    if (isinf(r) && !isinf(a) && !isinf(b)) {
        jinja_raise(j, "a floating-point number is too large");
        return jv_none();
    }
    return jv_float(r);
}

static struct jval float_op(struct jinja *j, enum token_type op, double a, double b)
{
    switch (op) {
    case TOK_ADD:
        return jv_float(a + b);
    case TOK_SUB:
        return jv_float(a - b);
    case TOK_MUL:
        return jv_float(a * b);
    case TOK_DIV:
        return jv_float(a / b);
    case TOK_FLOORDIV:
        return jv_float(float_floor_div(a, b));
    case TOK_MOD:
        return jv_float(float_mod(a, b));
    default:
        return float_power(j, a, b);
    }
}

static struct jval number_op(struct jinja *j, enum token_type op, struct jval a, struct jval b)
{
    bool divides = op == TOK_DIV || op == TOK_FLOORDIV || op == TOK_MOD;
    bool inverts = op == TOK_POW && jv_as_float(a) == 0 && jv_as_float(b) < 0;

    if ((divides && jv_as_float(b) == 0) || inverts) {
        jinja_raise(j, "division by zero");
        return jv_none();
    }
    if (jv_is_integral(a) && jv_is_integral(b))
        return int_op(j, op, jv_as_int(a), jv_as_int(b));
    return float_op(j, op, jv_as_float(a), jv_as_float(b));
}

/* As markupsafe: text that meets markup through + is escaped. */
static const struct jstr *escaped(struct jinja *j, const struct jstr *s)
{
    struct jval v = jinja_filter_escape(j, jv_str(s), NULL);

    return v.type == JT_STRING ? v.s : &js_empty;
}

static struct jval add_strings(struct jinja *j, const struct jstr *a, const struct jstr *b)
{
    struct jtext t;
    struct jstr *out;

    if (!a->markup && !b->markup)
        return jv_str(js_concat(j, a, b));
    jt_init(&t, j);
    jt_add_str(&t, escaped(j, a));
    jt_add_str(&t, escaped(j, b));
    out = jinja_alloc(j, 1, sizeof *out);
    if (out == NULL)
        return jv_none();
    *out = *jt_finish(&t);
    out->markup = true;
    return jv_str(out);
}

static struct jval add_seqs(struct jinja *j, const struct jseq *a, const struct jseq *b)
{
    struct jseq *out = jv_seq_new(j, a->kind, a->n + b->n);

    if (out == NULL)
        return jv_none();
    if (a->n != 0)
        memcpy(out->items, a->items, a->n * sizeof *out->items);
    if (b->n != 0)
        memcpy(out->items + a->n, b->items, b->n * sizeof *out->items);
    return jv_seq(out);
}

static struct jval repeat_string(struct jinja *j, const struct jstr *s, int64_t times)
{
    struct jtext t;
    size_t total;

    if (times <= 0 || s->len == 0)
        return jv_str(&js_empty);
    if (!size_mul(s->len, (size_t)times, &total) || total > JINJA_OUTPUT_MAX) {
        jinja_stop(j, ST_TOO_LARGE, "repeats a text too often");
        return jv_none();
    }
    jt_init(&t, j);
    for (int64_t i = 0; i < times && jinja_charge(j, i % 16 == 0); i++)
        jt_add_str(&t, s);
    return jv_str(jt_finish(&t));
}

static struct jval repeat_seq(struct jinja *j, const struct jseq *s, int64_t times)
{
    struct jseq *out;
    size_t total;

    if (times < 0)
        times = 0;
    if (!size_mul(s->n, (size_t)times, &total)) {
        jinja_stop(j, ST_TOO_LARGE, "repeats a list too often");
        return jv_none();
    }
    out = jv_seq_new(j, s->kind, total);
    for (size_t i = 0; out != NULL && i < total; i++)
        out->items[i] = s->items[i % s->n];
    return jv_seq(out);
}

static bool is_plain_seq(struct jval v)
{
    return jv_is_seq(v, SEQ_LIST) || jv_is_seq(v, SEQ_TUPLE);
}

static struct jval repeat(struct jinja *j, struct jval v, int64_t times)
{
    return v.type == JT_STRING ? repeat_string(j, v.s, times) : repeat_seq(j, v.seq, times);
}

static struct jval unsupported(struct jinja *j, enum token_type op, struct jval a, struct jval b)
{
    static const char *const symbols[] = {
        [TOK_ADD] = "+",       [TOK_SUB] = "-", [TOK_MUL] = "*",          [TOK_DIV] = "/",
        [TOK_FLOORDIV] = "//", [TOK_MOD] = "%", [TOK_POW] = "** or pow()"};

    if (op == TOK_MOD && a.type == JT_STRING)
        jinja_raise(j, "the operator %% on a string is not supported");
    else if (op == TOK_ADD && a.type == JT_STRING)
        jinja_raise(j, "can only concatenate str (not \"%s\") to str", jv_type_name(b));
    else
        jinja_raise(j, "unsupported operand type(s) for %s: '%s' and '%s'", symbols[op],
                    jv_type_name(a), jv_type_name(b));
    return jv_none();
}

struct jval jinja_binary(struct jinja *j, enum token_type op, struct jval a, struct jval b)
{
    if (a.type == JT_UNDEFINED || b.type == JT_UNDEFINED) {
        jinja_raise_undefined(j, a.type == JT_UNDEFINED ? a : b);
        return jv_none();
    }
    if (jv_is_number(a) && jv_is_number(b))
        return number_op(j, op, a, b);
    if (op == TOK_ADD && a.type == JT_STRING && b.type == JT_STRING)
        return add_strings(j, a.s, b.s);
    if (op == TOK_ADD && is_plain_seq(a) && is_plain_seq(b) && a.seq->kind == b.seq->kind)
        return add_seqs(j, a.seq, b.seq);
    if (op == TOK_MUL && (a.type == JT_STRING || is_plain_seq(a)) && jv_is_integral(b))
        return repeat(j, a, jv_as_int(b));
    if (op == TOK_MUL && (b.type == JT_STRING || is_plain_seq(b)) && jv_is_integral(a))
        return repeat(j, b, jv_as_int(a));
    return unsupported(j, op, a, b);
}

struct jval jinja_negate(struct jinja *j, struct jval v)
{
    if (v.type == JT_FLOAT)
        return jv_float(-v.f);
    if (jv_is_integral(v))
        return jv_as_int(v) == INT64_MIN ? overflow(j) : jv_int(-jv_as_int(v));
    if (v.type == JT_UNDEFINED)
        jinja_raise_undefined(j, v);
    else
        jinja_raise(j, "bad operand type for unary -: '%s'", jv_type_name(v));
    return jv_none();
}

bool jinja_contains(struct jinja *j, struct jval container, struct jval v)
{
    struct jseq items;

    if (container.type == JT_STRING) {
        if (v.type == JT_STRING)
            return js_find(j, container.s, v.s, 0) != SIZE_MAX;
        jinja_raise(j, "'in <string>' requires string as left operand, not %s", jv_type_name(v));
        return false;
    }
    if (container.type == JT_DICT)
        return jv_dict_find(j, container.dict, v) != NULL;
    if (container.type != JT_SEQ && container.type != JT_UNDEFINED) {
        jinja_raise(j, "argument of type '%s' is not iterable", jv_type_name(container));
        return false;
    }
    items = jv_iterate(j, container);
    for (size_t i = 0; i < items.n && jinja_charge(j, i % 4 == 0); i++) {
        if (jv_equal(j, items.items[i], v))
            return true;
    }
    return false;
}

bool jinja_compare(struct jinja *j, enum compare_op op, struct jval a, struct jval b)
{
    static const char *const symbols[] = {
        [CMP_LT] = "<", [CMP_LE] = "<=", [CMP_GT] = ">", [CMP_GE] = ">="};
    int c;

    if (op == CMP_EQ || op == CMP_NE)
        return jv_equal(j, a, b) == (op == CMP_EQ);
    if (op == CMP_IN || op == CMP_NOT_IN)
        return jinja_contains(j, b, a) == (op == CMP_IN);
    if (a.type == JT_UNDEFINED || b.type == JT_UNDEFINED) {
        jinja_raise_undefined(j, a.type == JT_UNDEFINED ? a : b);
        return false;
    }
    c = jv_compare(j, a, b, symbols[op]);
    return op == CMP_LT ? c < 0 : op == CMP_LE ? c <= 0 : op == CMP_GT ? c > 0 : c >= 0;
}
