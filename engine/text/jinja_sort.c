/* Keys of items, and the filters that order by them. */
#include "engine/text/jinja_sort.h"

#include <string.h>

#include "engine/text/jinja_eval.h"

struct jval jinja_attribute_of(struct jinja *j, struct jval item, struct jval path)
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

struct jval jinja_fold(struct jinja *j, struct jval v, bool case_sensitive)
{
    if (v.type == JT_STRING && !case_sensitive)
        return jv_str(jinja_case(j, v.s, CASE_LOWER));
    return v;
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
        return jinja_fold(j, jinja_attribute_of(j, item, paths), sensitive);
    keys = jv_seq_new(j, SEQ_LIST, 0);
    while (from <= paths.s->len && jinja_charge(j, 1)) {
        const char *comma = memchr(paths.s->data + from, ',', paths.s->len - from);
        size_t to = comma == NULL ? paths.s->len : (size_t)(comma - paths.s->data);
        struct jval path = jv_str(js_slice(j, paths.s, from, to));

        jv_seq_push(j, keys, jinja_fold(j, jinja_attribute_of(j, item, path), sensitive));
        from = to + 1;
    }
    return jv_seq(keys);
}

/* a: reverse, case_sensitive, attribute. */
struct jval jinja_filter_sort(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items = jv_iterate(j, self);
    struct jval *keys = jinja_alloc(j, items.n + 1, sizeof *keys);

    for (size_t i = 0; keys != NULL && i < items.n && j->status == ST_OK; i++)
        keys[i] = sort_key(j, items.items[i], a[2], jv_is_true(a[1]));
    return keys == NULL ? jv_none() : sorted(j, items, keys, jv_is_true(a[0]));
}

/* a: case_sensitive, by, reverse. */
struct jval jinja_filter_dictsort(struct jinja *j, struct jval self, const struct jval *a)
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

        keys[i] = jinja_fold(j, by_value ? value : key, jv_is_true(a[0]));
        jv_seq_push(j, &items, jv_pair(j, key, value));
    }
    return keys == NULL || j->status != ST_OK ? jv_none()
                                              : sorted(j, items, keys, jv_is_true(a[2]));
}
