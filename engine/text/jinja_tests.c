/* Tests: what stands after `is`. */
#include "engine/text/jinja_eval.h"

#include <math.h>
#include <string.h>

#include "engine/text/jinja_tables.h"

static struct jval is_defined(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type != JT_UNDEFINED);
}

static struct jval is_undefined(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_UNDEFINED);
}

static struct jval is_none(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_NONE);
}

static struct jval is_string(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_STRING);
}

static struct jval is_number(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(jv_is_number(v));
}

static struct jval is_integer(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_INT);
}

static struct jval is_float(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_FLOAT);
}

static struct jval is_boolean(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_BOOL);
}

static struct jval is_true(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_BOOL && v.b);
}

static struct jval is_false(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_BOOL && !v.b);
}

static struct jval is_mapping(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_DICT);
}

/* What has a length and an index; in Jinja an undefined value has both. */
static struct jval is_sequence(struct jinja *j, struct jval v, const struct jval *a)
{
    bool indexed = v.type == JT_SEQ && v.seq->kind <= SEQ_RANGE;

    (void)j;
    (void)a;
    return jv_bool(indexed || v.type == JT_STRING || v.type == JT_DICT || v.type == JT_UNDEFINED);
}

static struct jval is_iterable(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_SEQ || v.type == JT_STRING || v.type == JT_DICT ||
                   v.type == JT_UNDEFINED || v.type == JT_LOOP);
}

static struct jval is_callable(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_MACRO || v.type == JT_BUILTIN || v.type == JT_METHOD ||
                   v.type == JT_UNDEFINED);
}

static struct jval has_case(struct jinja *j, struct jval v, bool upper)
{
    const struct jstr *s = jinja_str(j, v);

    return jv_bool(jinja_charge(j, s->len / 16) && jinja_has_case(s, upper));
}

static struct jval is_upper(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)a;
    return has_case(j, v, true);
}

static struct jval is_lower(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)a;
    return has_case(j, v, false);
}

static bool is_multiple(struct jinja *j, struct jval v, struct jval of)
{
    struct jval rest = jinja_binary(j, TOK_MOD, v, of);

    return jv_is_number(rest) && jv_as_float(rest) == 0;
}

static struct jval is_even(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)a;
    return jv_bool(is_multiple(j, v, jv_int(2)));
}

static struct jval is_odd(struct jinja *j, struct jval v, const struct jval *a)
{
    struct jval rest = jinja_binary(j, TOK_MOD, v, jv_int(2));

    (void)a;
    return jv_bool(jv_is_number(rest) && jv_as_float(rest) == 1);
}

static struct jval is_divisibleby(struct jinja *j, struct jval v, const struct jval *a)
{
    return jv_bool(is_multiple(j, v, a[0]));
}

static struct jval is_eq(struct jinja *j, struct jval v, const struct jval *a)
{
    return jv_bool(jinja_compare(j, CMP_EQ, v, a[0]));
}

static struct jval is_ne(struct jinja *j, struct jval v, const struct jval *a)
{
    return jv_bool(jinja_compare(j, CMP_NE, v, a[0]));
}

static struct jval is_lt(struct jinja *j, struct jval v, const struct jval *a)
{
    return jv_bool(jinja_compare(j, CMP_LT, v, a[0]));
}

static struct jval is_le(struct jinja *j, struct jval v, const struct jval *a)
{
    return jv_bool(jinja_compare(j, CMP_LE, v, a[0]));
}

static struct jval is_gt(struct jinja *j, struct jval v, const struct jval *a)
{
    return jv_bool(jinja_compare(j, CMP_GT, v, a[0]));
}

static struct jval is_ge(struct jinja *j, struct jval v, const struct jval *a)
{
    return jv_bool(jinja_compare(j, CMP_GE, v, a[0]));
}

static struct jval is_in(struct jinja *j, struct jval v, const struct jval *a)
{
    return jv_bool(jinja_contains(j, a[0], v));
}

/* Identity, as far as it is seen: the same object, or equal values of a type that has no identity
 * of its own here. */
static struct jval is_sameas(struct jinja *j, struct jval v, const struct jval *a)
{
    if (v.type != a[0].type)
        return jv_bool(false);
    if (v.type == JT_SEQ || v.type == JT_DICT)
        return jv_bool((const void *)v.seq == (const void *)a[0].seq);
    return jv_bool(jv_equal(j, v, a[0]));
}

static struct jval is_escaped(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)j;
    (void)a;
    return jv_bool(v.type == JT_STRING && v.s->markup);
}

static bool is_known(struct jinja *j, struct jval v, const struct jfunc *(*find)(const char *name))
{
    const char *name;

    if (v.type != JT_STRING)
        return false;
    name = js_name(&j->arena, v.s);
    return name != NULL && find(name) != NULL;
}

static struct jval is_filter(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)a;
    return jv_bool(is_known(j, v, jinja_filter));
}

static struct jval is_test(struct jinja *j, struct jval v, const struct jval *a)
{
    (void)a;
    return jv_bool(is_known(j, v, jinja_test));
}

static const struct jfunc tests[] = {
    {"defined", "", is_defined, NULL},
    {"undefined", "", is_undefined, NULL},
    {"none", "", is_none, NULL},
    {"string", "", is_string, NULL},
    {"number", "", is_number, NULL},
    {"integer", "", is_integer, NULL},
    {"float", "", is_float, NULL},
    {"boolean", "", is_boolean, NULL},
    {"true", "", is_true, NULL},
    {"false", "", is_false, NULL},
    {"mapping", "", is_mapping, NULL},
    {"sequence", "", is_sequence, NULL},
    {"iterable", "", is_iterable, NULL},
    {"callable", "", is_callable, NULL},
    {"upper", "", is_upper, NULL},
    {"lower", "", is_lower, NULL},
    {"even", "", is_even, NULL},
    {"odd", "", is_odd, NULL},
    {"divisibleby", "num", is_divisibleby, NULL},
    {"in", "seq", is_in, NULL},
    {"sameas", "other", is_sameas, NULL},
    {"escaped", "", is_escaped, NULL},
    {"filter", "", is_filter, NULL},
    {"test", "", is_test, NULL},
    {"eq", "other", is_eq, NULL},
    {"equalto", "other", is_eq, NULL},
    {"==", "other", is_eq, NULL},
    {"ne", "other", is_ne, NULL},
    {"!=", "other", is_ne, NULL},
    {"lt", "other", is_lt, NULL},
    {"lessthan", "other", is_lt, NULL},
    {"<", "other", is_lt, NULL},
    {"le", "other", is_le, NULL},
    {"<=", "other", is_le, NULL},
    {"gt", "other", is_gt, NULL},
    {"greaterthan", "other", is_gt, NULL},
    {">", "other", is_gt, NULL},
    {"ge", "other", is_ge, NULL},
    {">=", "other", is_ge, NULL},
};

const struct jfunc *jinja_test(const char *name)
{
    return jinja_lookup(tests, COUNT_OF(tests), name);
}
