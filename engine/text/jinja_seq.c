/* Filters on sequences. Where Jinja returns a generator the result is one: true, without a length,
 * and read once; but it is computed at once, so that its errors come where it stands. */
#include "engine/text/jinja_eval.h"

#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_tables.h"

/* Attribute path "a.b.0" of an item, or the item itself without one. */
static struct jval attribute_of(struct jinja *j, struct jval item, struct jval path)
{
    const struct jstr *s;
    size_t from = 0;

    if (path.type == JT_MISSING || path.type == JT_NONE)
        return item;
    if (path.type != JT_STRING)
        return jinja_getitem(j, item, path);
    s = path.s;
    while (from <= s->len && jinja_charge(j, 1)) {
        const char *dot = memchr(s->data + from, '.', s->len - from);
        size_t to = dot == NULL ? s->len : (size_t)(dot - s->data);
        const struct jstr *part = js_slice(j, s, from, to);
        int64_t index = 0;
        bool is_index = part->len != 0 && part->len < 10;

        for (size_t i = 0; is_index && i < part->len; i++) {
            is_index = part->data[i] >= '0' && part->data[i] <= '9';
            index = index * 10 + (part->data[i] - '0');
        }
        item = jinja_getitem(j, item, is_index ? jv_int(index) : jv_str(part));
        from = to + 1;
    }
    return item;
}

/* Strings compare without case unless asked: the key of sort, unique, min, max, dictsort. */
static struct jval fold(struct jinja *j, struct jval v, bool case_sensitive)
{
    if (v.type == JT_STRING && !case_sensitive)
        return jv_str(jinja_case(j, v.s, CASE_LOWER));
    return v;
}

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
        jinja_add_str(&t, attribute_of(j, items.items[i], a[1]));
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

struct sorter {
    struct jinja *j;
    struct jval *keys;
    bool descending;
};

/* Whether item a must come after item b; equal ones keep their order either way. */
static bool is_after(const struct sorter *s, size_t a, size_t b)
{
    int c = jv_compare(s->j, s->keys[a], s->keys[b], "<");

    return s->descending ? c < 0 : c > 0;
}

/* Stable merge sort of order[0..n) with room for n more at tmp. */
static void merge_sort(const struct sorter *s, size_t *order, size_t *tmp, size_t n)
{
    size_t half = n / 2, i = 0, k = half, at = 0;

    if (n < 2 || !jinja_charge(s->j, n))
        return;
    merge_sort(s, order, tmp, half);
    merge_sort(s, order + half, tmp, n - half);
    while (i < half && k < n)
        tmp[at++] = is_after(s, order[i], order[k]) ? order[k++] : order[i++];
    while (i < half)
        tmp[at++] = order[i++];
    while (k < n)
        tmp[at++] = order[k++];
    memcpy(order, tmp, n * sizeof *order);
}

/* A list of the items in the order of their keys. */
static struct jval sorted(struct jinja *j, struct jseq items, struct jval *keys, bool descending)
{
    struct sorter s = {j, keys, descending};
    size_t *order = jinja_alloc(j, items.n + 1, 2 * sizeof *order);
    struct jseq *out = jv_seq_new(j, SEQ_LIST, items.n);

    if (order == NULL || out == NULL)
        return jv_none();
    for (size_t i = 0; i < items.n; i++)
        order[i] = i;
    merge_sort(&s, order, order + items.n + 1, items.n);
    for (size_t i = 0; i < items.n; i++)
        out->items[i] = items.items[order[i]];
    return jv_seq(out);
}

/* The sort key for "a,b.c": a list when there are several attributes. */
static struct jval sort_key(struct jinja *j, struct jval item, struct jval paths, bool sensitive)
{
    struct jseq *keys;
    size_t from = 0;

    if (paths.type != JT_STRING || memchr(paths.s->data, ',', paths.s->len) == NULL)
        return fold(j, attribute_of(j, item, paths), sensitive);
    keys = jv_seq_new(j, SEQ_LIST, 0);
    while (from <= paths.s->len && jinja_charge(j, 1)) {
        const char *comma = memchr(paths.s->data + from, ',', paths.s->len - from);
        size_t to = comma == NULL ? paths.s->len : (size_t)(comma - paths.s->data);
        struct jval path = jv_str(js_slice(j, paths.s, from, to));

        jv_seq_push(j, keys, fold(j, attribute_of(j, item, path), sensitive));
        from = to + 1;
    }
    return jv_seq(keys);
}

/* a: reverse, case_sensitive, attribute. */
static struct jval filter_sort(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items = jv_iterate(j, self);
    struct jval *keys = jinja_alloc(j, items.n + 1, sizeof *keys);

    for (size_t i = 0; keys != NULL && i < items.n && j->status == ST_OK; i++)
        keys[i] = sort_key(j, items.items[i], a[2], jv_is_true(a[1]));
    return keys == NULL ? jv_none() : sorted(j, items, keys, jv_is_true(a[0]));
}

/* a: case_sensitive, by, reverse. */
static struct jval filter_dictsort(struct jinja *j, struct jval self, const struct jval *a)
{
    bool by_value = a[1].type == JT_STRING && js_is(a[1].s, "value");
    struct jseq items = {.kind = SEQ_LIST};
    struct jval *keys;

    if (self.type != JT_DICT) {
        jinja_raise(j, "'%s' object has no attribute 'items'", jv_type_name(self));
        return jv_none();
    }
    if (a[1].type != JT_MISSING && !by_value && !(a[1].type == JT_STRING && js_is(a[1].s, "key"))) {
        jinja_raise(j, "You can only sort by either \"key\" or \"value\"");
        return jv_none();
    }
    keys = jinja_alloc(j, self.dict->n + 1, sizeof *keys);
    for (size_t i = 0; keys != NULL && i < self.dict->n && j->status == ST_OK; i++) {
        struct jval key = self.dict->keys[i], value = self.dict->values[i];

        keys[i] = fold(j, by_value ? value : key, jv_is_true(a[0]));
        jv_seq_push(j, &items, jv_pair(j, key, value));
    }
    return keys == NULL || j->status != ST_OK ? jv_none()
                                              : sorted(j, items, keys, jv_is_true(a[2]));
}

/* a: case_sensitive, attribute. */
static struct jval filter_unique(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items = jv_iterate(j, self);
    struct jseq *out = jv_seq_new(j, SEQ_GENERATOR, 0);
    struct jdict *seen = jv_dict_new(j);

    for (size_t i = 0; seen != NULL && i < items.n && j->status == ST_OK; i++) {
        struct jval key = fold(j, attribute_of(j, items.items[i], a[1]), jv_is_true(a[0]));

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
        struct jval key = fold(j, attribute_of(j, items.items[i], a[1]), jv_is_true(a[0]));

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
        sum = jinja_binary(j, TOK_ADD, sum, attribute_of(j, items.items[i], a[0]));
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
    const char *text =
        name.type != JT_STRING ? NULL : arena_strndup(&j->arena, name.s->data, name.s->len);
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
        struct jval v = attribute_of(j, items.items[i], skip == 0 ? jv_missing() : args->pos[0]);
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
    v = attribute_of(j, item, path);
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
    {"sort", "reverse? case_sensitive? attribute?", filter_sort, NULL},
    {"dictsort", "case_sensitive? by? reverse?", filter_dictsort, NULL},
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
