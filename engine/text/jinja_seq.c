/* Filters on sequences. Where Jinja returns a generator the result is one: true, without a length,
 * and read once; but it is computed at once, so that its errors come where it stands. */
#include "engine/text/jinja_eval.h"

#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_sort.h"
#include "engine/text/jinja_tables.h"

static struct jval filter_length(struct jinja *j, struct jval self, const struct jval *a)
{
    size_t n = 0;

    (void)a;
    if (!jv_length(j, self, &n))
        jinja_raise(j, "object of type '%s' has no len()", jv_type_name(self));
    return jv_int((int64_t)n);
}

static struct jval filter_first(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items;

    (void)a;
    if (jv_is_seq(self, SEQ_GENERATOR) && self.seq->next < self.seq->n)
        return self.seq->items[self.seq->next++];
    if (self.type == JT_STRING && self.s->len != 0)
        return jinja_getitem(j, self, jv_int(0));
    items = jv_iterate(j, self);
    return items.n != 0 ? items.items[0]
                        : jv_undefined_hint(j, "No first item, sequence was empty.");
}

static struct jval filter_last(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items;

    (void)a;
    if (jv_is_seq(self, SEQ_GENERATOR)) {
        jinja_raise(j, "'generator' object is not reversible");
        return jv_none();
    }
    if (self.type == JT_STRING && self.s->len != 0)
        return jinja_getitem(j, self, jv_int(-1));
    items = jv_iterate(j, self);
    return items.n != 0 ? items.items[items.n - 1]
                        : jv_undefined_hint(j, "No last item, sequence was empty.");
}

static struct jval filter_join(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items = jv_iterate(j, self);
    struct jtext t;

    jt_init(&t, j);
    for (size_t i = 0; i < items.n && jinja_charge(j, 1); i++) {
        if (i != 0)
            jinja_add_str(&t, a[0]);
        jinja_add_str(&t, jinja_attribute_of(j, items.items[i], a[1]));
    }
    return jv_str(jt_finish(&t));
}

static struct jval to_seq(struct jinja *j, struct jseq items, enum jseq_kind kind)
{
    struct jseq *out = jv_seq_new(j, kind, items.n);

    if (out != NULL && items.n != 0)
        memcpy(out->items, items.items, items.n * sizeof *out->items);
    return jv_seq(out);
}

static struct jval filter_list(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return to_seq(j, jv_iterate(j, self), SEQ_LIST);
}

static struct jval filter_items(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq *out = jv_seq_new(j, SEQ_GENERATOR, self.type == JT_DICT ? self.dict->n : 0);

    (void)a;
    if (self.type != JT_DICT && self.type != JT_UNDEFINED)
        jinja_raise(j, "Can only get item pairs from a mapping.");
    for (size_t i = 0; out != NULL && i < out->n; i++)
        out->items[i] = jv_pair(j, self.dict->keys[i], self.dict->values[i]);
    return jv_seq(out);
}

static struct jval filter_reverse(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items = jv_iterate(j, self);
    struct jval out;
    struct jtext t;

    (void)a;
    if (self.type == JT_STRING) {
        jt_init(&t, j);
        for (size_t i = items.n; i > 0 && jinja_charge(j, 1); i--)
            jt_add_str(&t, items.items[i - 1].s);
        return jv_str(jt_finish(&t));
    }
    /* Only what has no order of its own to reverse becomes a list. */
    out = to_seq(j, items, jv_is_seq(self, SEQ_GENERATOR) ? SEQ_LIST : SEQ_GENERATOR);
    for (size_t i = 0; out.type == JT_SEQ && i < items.n; i++)
        out.seq->items[i] = items.items[items.n - 1 - i];
    return out;
}

/* a: case_sensitive, attribute. */
static struct jval filter_unique(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items = jv_iterate(j, self);
    struct jseq *out = jv_seq_new(j, SEQ_GENERATOR, 0);
    struct jdict *seen = jv_dict_new(j);

    for (size_t i = 0; seen != NULL && i < items.n && j->status == ST_OK; i++) {
        struct jval key =
            jinja_fold(j, jinja_attribute_of(j, items.items[i], a[1]), jv_is_true(a[0]));

        if (jv_dict_find(j, seen, key) != NULL)
            continue;
        jv_dict_push(j, seen, key, jv_none());
        jv_seq_push(j, out, items.items[i]);
    }
    return jv_seq(out);
}

static struct jval extreme(struct jinja *j, struct jval self, const struct jval *a, int sign)
{
    struct jseq items = jv_iterate(j, self);
    struct jval best = jv_none(), best_key = jv_none();

    if (items.n == 0)
        return jv_undefined_hint(j, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < items.n && jinja_charge(j, 1); i++) {
        struct jval key =
            jinja_fold(j, jinja_attribute_of(j, items.items[i], a[1]), jv_is_true(a[0]));

        if (i == 0 || jv_compare(j, key, best_key, sign < 0 ? "<" : ">") * sign > 0) {
            best = items.items[i];
            best_key = key;
        }
    }
    return best;
}

static struct jval filter_min(struct jinja *j, struct jval self, const struct jval *a)
{
    return extreme(j, self, a, -1);
}

static struct jval filter_max(struct jinja *j, struct jval self, const struct jval *a)
{
    return extreme(j, self, a, 1);
}

/* a: attribute, start. */
static struct jval filter_sum(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items = jv_iterate(j, self);
    struct jval sum = a[1].type == JT_MISSING ? jv_int(0) : a[1];

    if (sum.type == JT_STRING)
        jinja_raise(j, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < items.n && jinja_charge(j, 1); i++)
        sum = jinja_binary(j, TOK_ADD, sum, jinja_attribute_of(j, items.items[i], a[0]));
    return sum;
}

/* Arguments without their first `n` positional ones. */
static struct jargs args_after(const struct jargs *args, size_t n)
{
    struct jargs rest = *args;

    rest.pos = n == args->n_pos ? NULL : args->pos + n;
    rest.n_pos -= n;
    return rest;
}

/* A table function that an argument names; NULL (and failed) when there is none. */
static const struct jfunc *named_function(struct jinja *j, struct jval name,
                                          const struct jfunc *(*find)(const char *name))
{
    const char *text = name.type != JT_STRING ? NULL : js_name(&j->arena, name.s);
    const struct jfunc *f = text == NULL ? NULL : find(text);

    if (f == NULL)
        jinja_raise(j, "no such filter or test");
    return f;
}

/* For map, select and their kin nothing false need be iterable: none gives no items. */
static struct jseq items_if_true(struct jinja *j, struct jval v)
{
    return jv_is_true(v) ? jv_iterate(j, v) : (struct jseq){.kind = SEQ_LIST};
}

/* select and reject (by_attribute false), selectattr and rejectattr. */
static struct jval choose(struct jinja *j, struct jval self, const struct jargs *args,
                          bool by_attribute, bool want)
{
    struct jseq items = items_if_true(j, self);
    struct jseq *out = jv_seq_new(j, SEQ_GENERATOR, 0);
    size_t skip = by_attribute ? 1 : 0;
    const struct jfunc *test = NULL;
    struct jargs rest = {0};

    if (args->n_pos < skip) {
        jinja_raise(j, "Missing parameter for attribute name");
        return jv_none();
    }
    if (args->n_pos > skip) {
        test = named_function(j, args->pos[skip], jinja_test);
        rest = args_after(args, skip + 1);
    }
    for (size_t i = 0; i < items.n && jinja_charge(j, 1); i++) {
        struct jval v =
            jinja_attribute_of(j, items.items[i], skip == 0 ? jv_missing() : args->pos[0]);
        bool chosen = jv_is_true(test == NULL ? v : jinja_invoke(j, test, v, &rest));

        if (chosen == want)
            jv_seq_push(j, out, items.items[i]);
    }
    return jv_seq(out);
}

static struct jval filter_select(struct jinja *j, struct jval self, const struct jargs *args)
{
    return choose(j, self, args, false, true);
}

static struct jval filter_reject(struct jinja *j, struct jval self, const struct jargs *args)
{
    return choose(j, self, args, false, false);
}

static struct jval filter_selectattr(struct jinja *j, struct jval self, const struct jargs *args)
{
    return choose(j, self, args, true, true);
}

static struct jval filter_rejectattr(struct jinja *j, struct jval self, const struct jargs *args)
{
    return choose(j, self, args, true, false);
}

/* map(attribute="path", default=value) */
static struct jval map_attribute(struct jinja *j, struct jval item, const struct jargs *args)
{
    struct jval path = jv_missing(), missing = jv_missing(), v;

    for (size_t i = 0; i < args->n_named; i++) {
        if (strcmp(args->names[i], "attribute") == 0)
            path = args->named[i];
        else if (strcmp(args->names[i], "default") == 0)
            missing = args->named[i];
        else
            jinja_raise(j, "map() got an argument that it does not take");
    }
    if (path.type == JT_MISSING)
        jinja_raise(j, "map requires a filter argument");
    v = jinja_attribute_of(j, item, path);
    return v.type == JT_UNDEFINED && missing.type != JT_MISSING && missing.type != JT_NONE ? missing
                                                                                           : v;
}

static struct jval filter_map(struct jinja *j, struct jval self, const struct jargs *args)
{
    struct jseq items = items_if_true(j, self);
    struct jseq *out = jv_seq_new(j, SEQ_GENERATOR, 0);
    const struct jfunc *f = NULL;
    struct jargs rest = {0};

    if (args->n_pos != 0) {
        f = named_function(j, args->pos[0], jinja_filter);
        rest = args_after(args, 1);
    }
    for (size_t i = 0; i < items.n && jinja_charge(j, 1); i++) {
        struct jval v = items.items[i];

        jv_seq_push(j, out, f == NULL ? map_attribute(j, v, args) : jinja_invoke(j, f, v, &rest));
    }
    return jv_seq(out);
}

static const struct jfunc filters[] = {
    {"length", "", filter_length, NULL},
    {"count", "", filter_length, NULL},
    {"first", "", filter_first, NULL},
    {"last", "", filter_last, NULL},
    {"join", "d? attribute?", filter_join, NULL},
    {"list", "", filter_list, NULL},
    {"items", "", filter_items, NULL},
    {"reverse", "", filter_reverse, NULL},
    {"sort", "reverse? case_sensitive? attribute?", jinja_filter_sort, NULL},
    {"dictsort", "case_sensitive? by? reverse?", jinja_filter_dictsort, NULL},
    {"unique", "case_sensitive? attribute?", filter_unique, NULL},
    {"min", "case_sensitive? attribute?", filter_min, NULL},
    {"max", "case_sensitive? attribute?", filter_max, NULL},
    {"sum", "attribute? start?", filter_sum, NULL},
    {"select", NULL, NULL, filter_select},
    {"reject", NULL, NULL, filter_reject},
    {"selectattr", NULL, NULL, filter_selectattr},
    {"rejectattr", NULL, NULL, filter_rejectattr},
    {"map", NULL, NULL, filter_map},
};

const struct jfunc *jinja_seq_filter(const char *name)
{
    return jinja_lookup(filters, COUNT_OF(filters), name);
}
