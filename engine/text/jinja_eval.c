#include "engine/text/jinja_eval.h"

#include <string.h>

#include "engine/text/jinja_tables.h"

struct jval jinja_lookup_name(struct jinja *j, const char *name)
{
    const struct jfunc *global;
    size_t seen = 0;

    for (const struct jinja_scope *s = j->scope; s != NULL; s = s->parent) {
        for (const struct jinja_binding *b = s->vars; b != NULL; b = b->next) {
            if (strcmp(b->name, name) == 0)
                return b->value;
            if (++seen % 8 == 0 && !jinja_charge(j, 1))
                return jv_none();
        }
        if (!jinja_charge(j, 1))
            return jv_none();
    }
    global = jinja_global(name);
    if (global != NULL)
        return (struct jval){.type = JT_BUILTIN, .builtin = global};
    return jv_undefined(j, name);
}

static struct jval eval_items(struct jinja *j, const struct expr *e, enum jseq_kind kind)
{
    struct jseq *seq = jv_seq_new(j, kind, e->n_args);

    for (size_t i = 0; seq != NULL && i < e->n_args; i++)
        seq->items[i] = jinja_eval(j, e->args[i]);
    return jv_seq(seq);
}

static struct jval eval_dict(struct jinja *j, const struct expr *e)
{
    struct jdict *d = jv_dict_new(j);

    for (size_t i = 0; i + 1 < e->n_args && j->status == ST_OK; i += 2) {
        struct jval key = jinja_eval(j, e->args[i]);

        jv_dict_put(j, d, key, jinja_eval(j, e->args[i + 1]));
    }
    return jv_dict(d);
}

static struct jval eval_concat(struct jinja *j, const struct expr *e)
{
    const struct jstr *s = jinja_str(j, jinja_eval(j, e->args[0]));

    for (size_t i = 1; i < e->n_args && j->status == ST_OK; i++)
        s = js_concat(j, s, jinja_str(j, jinja_eval(j, e->args[i])));
    return jv_str(s);
}

static struct jval eval_compare(struct jinja *j, const struct expr *e)
{
    struct jval left = jinja_eval(j, e->a);

    for (size_t i = 0; i < e->n_args && j->status == ST_OK; i++) {
        struct jval right = jinja_eval(j, e->args[i]);

        j->line = e->line;
        if (!jinja_compare(j, e->ops[i], left, right))
            return jv_bool(false);
        left = right;
    }
    return jv_bool(true);
}

static struct jval eval_cond(struct jinja *j, const struct expr *e)
{
    if (jv_is_true(jinja_eval(j, e->b)))
        return jinja_eval(j, e->a);
    if (e->c != NULL)
        return jinja_eval(j, e->c);
    return jv_undefined_hint(j, "the inline if-expression evaluated to false and no else section "
                                "was defined.");
}

static struct jval eval_slice(struct jinja *j, const struct expr *e)
{
    struct jval object = jinja_eval(j, e->a), part[3];

    for (size_t i = 0; i < 3; i++)
        part[i] = e->args[i] == NULL ? jv_none() : jinja_eval(j, e->args[i]);
    j->line = e->line;
    return jinja_slice(j, object, part);
}

/* Evaluates a call's arguments; false after a failure. */
static bool eval_args(struct jinja *j, const struct expr *e, struct jargs *out)
{
    size_t n = e->n_args + e->n_named;
    struct jval *values;

    *out = (struct jargs){.n_pos = e->n_args, .names = e->names, .n_named = e->n_named};
    if (n == 0)
        return j->status == ST_OK;
    values = jinja_alloc(j, n, sizeof *values);
    if (values == NULL)
        return false;
    for (size_t i = 0; i < e->n_args; i++)
        values[i] = jinja_eval(j, e->args[i]);
    for (size_t i = 0; i < e->n_named; i++)
        values[e->n_args + i] = jinja_eval(j, e->named[i]);
    out->pos = values;
    out->named = values + e->n_args;
    return j->status == ST_OK;
}

struct jval jinja_call(struct jinja *j, struct jval callee, const struct jargs *args)
{
    switch (callee.type) {
    case JT_MACRO:
        return jinja_call_macro(j, callee.macro, args);
    case JT_BUILTIN:
        return jinja_invoke(j, callee.builtin, jv_missing(), args);
    case JT_METHOD:
        return jinja_invoke(j, callee.method->func, callee.method->self, args);
    case JT_UNDEFINED:
        jinja_raise_undefined(j, callee);
        return callee;
    default:
        jinja_raise(j, "'%s' object is not callable", jv_type_name(callee));
        return jv_none();
    }
}

static struct jval eval_call(struct jinja *j, const struct expr *e)
{
    struct jval callee = jinja_eval(j, e->a);
    struct jargs args;

    if (!eval_args(j, e, &args))
        return jv_none();
    j->line = e->line;
    return jinja_call(j, callee, &args);
}

/* Filters and tests: a function of the value on their left. */
static struct jval eval_applied(struct jinja *j, const struct expr *e, struct jval self)
{
    struct jargs args;

    if (!eval_args(j, e, &args))
        return jv_none();
    j->line = e->line;
    if (e->func != NULL)
        return jinja_invoke(j, e->func, self, &args);
    jinja_raise(j, "there is no filter or test named '%.80s'", e->name);
    return jv_none();
}

static struct jval eval_and_or(struct jinja *j, const struct expr *e)
{
    struct jval left = jinja_eval(j, e->a);

    return jv_is_true(left) == (e->kind == EXPR_AND) ? jinja_eval(j, e->b) : left;
}

static struct jval eval_unary(struct jinja *j, const struct expr *e)
{
    struct jval v = jinja_eval(j, e->a);

    j->line = e->line;
    if (e->kind == EXPR_NOT)
        return jv_bool(!jv_is_true(v));
    if (e->kind == EXPR_NEGATE)
        return jinja_negate(j, v);
    return jinja_negate(j, jinja_negate(j, v));
}

static struct jval eval_pair(struct jinja *j, const struct expr *e)
{
    struct jval a = jinja_eval(j, e->a), b = jinja_eval(j, e->b);

    j->line = e->line;
    return e->kind == EXPR_ITEM ? jinja_getitem(j, a, b) : jinja_binary(j, e->op, a, b);
}

static struct jval eval_attr(struct jinja *j, const struct expr *e)
{
    struct jval object = jinja_eval(j, e->a);

    j->line = e->line;
    return jinja_getattr(j, object, e->name);
}

static struct jval eval_node(struct jinja *j, const struct expr *e)
{
    switch (e->kind) {
    case EXPR_CONST:
        return e->value;
    case EXPR_NAME:
        return jinja_lookup_name(j, e->name);
    case EXPR_LIST:
        return eval_items(j, e, SEQ_LIST);
    case EXPR_TUPLE:
        return eval_items(j, e, SEQ_TUPLE);
    case EXPR_DICT:
        return eval_dict(j, e);
    case EXPR_NEGATE:
    case EXPR_PLUS:
    case EXPR_NOT:
        return eval_unary(j, e);
    case EXPR_AND:
    case EXPR_OR:
        return eval_and_or(j, e);
    case EXPR_BINARY:
    case EXPR_ITEM:
        return eval_pair(j, e);
    case EXPR_CONCAT:
        return eval_concat(j, e);
    case EXPR_COMPARE:
        return eval_compare(j, e);
    case EXPR_COND:
        return eval_cond(j, e);
    case EXPR_ATTR:
        return eval_attr(j, e);
    case EXPR_SLICE:
        return eval_slice(j, e);
    case EXPR_CALL:
        return eval_call(j, e);
    case EXPR_FILTER:
    case EXPR_TEST:
        return eval_applied(j, e, jinja_eval(j, e->a));
    }
    return jv_none();
}

struct jval jinja_eval(struct jinja *j, const struct expr *e)
{
    struct jval v;

    j->line = e->line;
    if (!jinja_charge(j, 1))
        return jv_undefined_hint(j, "");
    if (j->depth >= JINJA_EVAL_DEPTH_MAX) {
        jinja_stop(j, ST_TOO_LARGE, "nests too deeply");
        return jv_none();
    }
    j->depth++;
    v = eval_node(j, e);
    j->depth--;
    return v;
}

struct jval jinja_apply_filters(struct jinja *j, const struct expr *filters,
                                const struct jstr *text)
{
    struct jval self = jv_str(text);

    if (filters == NULL || !jinja_charge(j, 1))
        return self;
    if (filters->a != NULL)
        self = jinja_apply_filters(j, filters->a, text);
    return eval_applied(j, filters, self);
}
