/* Equality and order of values, as Python has them. */
#include "engine/text/jinja_run.h"
#include "engine/text/jinja_value.h"

static bool seq_equal(struct jinja *j, const struct jseq *a, const struct jseq *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || a->kind == SEQ_GENERATOR || a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (!jinja_charge(j, i % 8 == 0) || !jv_equal(j, a->items[i], b->items[i]))
            return false;
    }
    return true;
}

static bool dict_equal(struct jinja *j, const struct jdict *a, const struct jdict *b)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jval *other = jv_dict_find(j, b, a->keys[i]);

        if (other == NULL || !jv_equal(j, a->values[i], *other))
            return false;
    }
    return true;
}

static bool number_equal(struct jval a, struct jval b)
{
    if (jv_is_integral(a) && jv_is_integral(b))
        return jv_as_int(a) == jv_as_int(b);
    return jv_as_float(a) == jv_as_float(b);
}

/* Objects without an equality of their own are equal to themselves. */
static bool identical(struct jval a, struct jval b)
{
    if (a.type == JT_METHOD)
        return a.method->func == b.method->func;
    return (const void *)a.dict == (const void *)b.dict;
}

bool jv_equal(struct jinja *j, struct jval a, struct jval b)
{
    bool equal;

    if (jv_is_number(a) && jv_is_number(b))
        return number_equal(a, b);
    if (a.type != b.type)
        return false;
    if (a.type == JT_STRING)
        return jinja_charge(j, a.s->len / 256) && js_equal(a.s, b.s);
    if (a.type == JT_NONE || a.type == JT_UNDEFINED)
        return true;
    if (a.type != JT_SEQ && a.type != JT_DICT)
        return identical(a, b);
    if (!jinja_enter_value(j))
        return false;
    equal = a.type == JT_SEQ ? seq_equal(j, a.seq, b.seq) : dict_equal(j, a.dict, b.dict);
    jinja_leave_value(j);
    return equal;
}

static int number_compare(struct jval a, struct jval b)
{
    double x, y;

    if (jv_is_integral(a) && jv_is_integral(b))
        return (jv_as_int(a) > jv_as_int(b)) - (jv_as_int(a) < jv_as_int(b));
    x = jv_as_float(a);
    y = jv_as_float(b);
    return (x > y) - (x < y);
}

static int seq_compare(struct jinja *j, const struct jseq *a, const struct jseq *b, const char *op)
{
    int c = 0;

    if (!jinja_enter_value(j))
        return 0;
    for (size_t i = 0; c == 0 && i < a->n && i < b->n && jinja_charge(j, 1); i++) {
        if (!jv_equal(j, a->items[i], b->items[i]))
            c = jv_compare(j, a->items[i], b->items[i], op);
    }
    jinja_leave_value(j);
    return c != 0 ? c : (a->n > b->n) - (a->n < b->n);
}

int jv_compare(struct jinja *j, struct jval a, struct jval b, const char *op)
{
    if (jv_is_number(a) && jv_is_number(b))
        return number_compare(a, b);
    if (a.type == JT_STRING && b.type == JT_STRING) {
        jinja_charge(j, a.s->len / 256);
        return js_compare(a.s, b.s);
    }
    if (a.type == JT_SEQ && b.type == JT_SEQ && a.seq->kind == b.seq->kind &&
        (a.seq->kind == SEQ_LIST || a.seq->kind == SEQ_TUPLE))
        return seq_compare(j, a.seq, b.seq, op);
    jinja_raise(j, "'%s' not supported between instances of '%s' and '%s'", op, jv_type_name(a),
                jv_type_name(b));
    return 0;
}
