/* Attributes, items, and the methods of dicts, lists and loops. As Jinja's immutable
 * sandbox: what would change a value is out of reach. */
#include "engine/text/jinja_eval.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_tables.h"

static struct jval view(struct jinja *j, struct jval self, enum jseq_kind kind)
{
    const struct jdict *d = self.dict;
    struct jseq *seq = jv_seq_new(j, kind, d->n);

    for (size_t i = 0; seq != NULL && i < d->n; i++) {
        if (kind == SEQ_ITEMS)
            seq->items[i] = jv_pair(j, d->keys[i], d->values[i]);
        else
            seq->items[i] = kind == SEQ_KEYS ? d->keys[i] : d->values[i];
    }
    return jv_seq(seq);
}

static struct jval dict_items(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return view(j, self, SEQ_ITEMS);
}

static struct jval dict_keys(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return view(j, self, SEQ_KEYS);
}

static struct jval dict_values(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return view(j, self, SEQ_VALUES);
}

static struct jval dict_get(struct jinja *j, struct jval self, const struct jval *a)
{
    const struct jval *v = jv_dict_find(j, self.dict, a[0]);

    if (v != NULL)
        return *v;
    return a[1].type == JT_MISSING ? jv_none() : a[1];
}

/* Values never change, so a copy is the value. */
static struct jval copy(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)j;
    (void)a;
    return self;
}

static struct jval seq_index(struct jinja *j, struct jval self, const struct jval *a)
{
    for (size_t i = 0; i < self.seq->n && jinja_charge(j, 1); i++) {
        if (jv_equal(j, self.seq->items[i], a[0]))
            return jv_int((int64_t)i);
    }
    jinja_raise(j, "the value is not in the list");
    return jv_none();
}

static struct jval seq_count(struct jinja *j, struct jval self, const struct jval *a)
{
    int64_t n = 0;

    for (size_t i = 0; i < self.seq->n && jinja_charge(j, 1); i++)
        n += jv_equal(j, self.seq->items[i], a[0]);
    return jv_int(n);
}

static struct jval loop_cycle(struct jinja *j, struct jval self, const struct jargs *args)
{
    if (args->n_pos != 0)
        return args->pos[self.loop->i % args->n_pos];
    jinja_raise(j, "no items for cycling given");
    return jv_none();
}

static struct jval loop_changed(struct jinja *j, struct jval self, const struct jargs *args)
{
    struct jseq *now = jv_seq_new(j, SEQ_TUPLE, args->n_pos);
    bool changed;

    if (now == NULL)
        return jv_none();
    if (args->n_pos != 0)
        memcpy(now->items, args->pos, args->n_pos * sizeof *now->items);
    changed = !jv_equal(j, self.loop->changed, jv_seq(now));
    self.loop->changed = jv_seq(now);
    return jv_bool(changed);
}

static const struct jfunc dict_methods[] = {
    {"get", "key default?", dict_get, NULL},
    {"items", "", dict_items, NULL},
    {"keys", "", dict_keys, NULL},
    {"values", "", dict_values, NULL},
    {"copy", "", copy, NULL},
};
static const struct jfunc seq_methods[] = {
    {"index", "value", seq_index, NULL},
    {"count", "value", seq_count, NULL},
    {"copy", "", copy, NULL},
};
static const struct jfunc loop_methods[] = {
    {"cycle", NULL, NULL, loop_cycle},
    {"changed", NULL, NULL, loop_changed},
};
static const char *const dict_unsafe[] = {"clear", "pop", "popitem", "setdefault", "update"};
static const char *const list_unsafe[] = {"append", "clear", "pop",    "reverse",
                                          "insert", "sort",  "extend", "remove"};

static bool is_one_of(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

bool jinja_has_method(const char *name)
{
    return jinja_str_method(name) != NULL ||
           jinja_lookup(dict_methods, COUNT_OF(dict_methods), name) != NULL ||
           jinja_lookup(seq_methods, COUNT_OF(seq_methods), name) != NULL ||
           jinja_lookup(loop_methods, COUNT_OF(loop_methods), name) != NULL ||
           is_one_of(dict_unsafe, COUNT_OF(dict_unsafe), name) ||
           is_one_of(list_unsafe, COUNT_OF(list_unsafe), name);
}

const struct jfunc *jinja_method(struct jval v, const char *name, bool *unsafe)
{
    bool is_list = jv_is_seq(v, SEQ_LIST);

    *unsafe = strncmp(name, "__", 2) == 0 ||
              (v.type == JT_DICT && is_one_of(dict_unsafe, COUNT_OF(dict_unsafe), name)) ||
              (is_list && is_one_of(list_unsafe, COUNT_OF(list_unsafe), name));
    if (v.type == JT_STRING)
        return jinja_str_method(name);
    if (v.type == JT_DICT)
        return jinja_lookup(dict_methods, COUNT_OF(dict_methods), name);
    if (v.type == JT_LOOP)
        return jinja_lookup(loop_methods, COUNT_OF(loop_methods), name);
    if (is_list || jv_is_seq(v, SEQ_TUPLE) || jv_is_seq(v, SEQ_RANGE))
        return jinja_lookup(seq_methods, is_list ? 3 : 2, name); /* only lists have copy */
    return NULL;
}

void jinja_raise_undefined(struct jinja *j, struct jval v)
{
    const struct jundef *u = v.undef;

    if (u->hint != NULL)
        jinja_raise(j, "%s", u->hint);
    else if (u->object == NULL)
        jinja_raise(j, "'%s' is undefined", u->name);
    else if (u->name == NULL)
        jinja_raise(j, "%s%s has no such element", u->object,
                    strcmp(u->object, "None") == 0 ? "" : " object");
    else
        jinja_raise(j, "'%s%s' has no attribute '%s'", u->object,
                    strcmp(u->object, "None") == 0 ? "" : " object", u->name);
}

static struct jval unsafe_attr(struct jinja *j, struct jval object, const char *name)
{
    char text[160];
    const char *hint;

    snprintf(text, sizeof text, "access to attribute '%.60s' of '%s' object is unsafe.", name,
             jv_type_name(object));
    hint = arena_strndup(&j->arena, text, strlen(text));
    return jv_undefined_hint(j, hint == NULL ? "" : hint);
}

/* A method bound to its object, or (found is false) nothing. */
static struct jval method_of(struct jinja *j, struct jval object, const char *name, bool *found)
{
    bool unsafe;
    const struct jfunc *f = jinja_method(object, name, &unsafe);
    struct jmethod *m;

    *found = unsafe || f != NULL;
    if (unsafe)
        return unsafe_attr(j, object, name);
    m = f == NULL ? NULL : jinja_alloc(j, 1, sizeof *m);
    if (m == NULL)
        return jv_none();
    *m = (struct jmethod){object, f};
    return (struct jval){.type = JT_METHOD, .method = m};
}

static struct jval loop_item(struct jinja *j, const struct jloop *loop, bool next)
{
    if (next)
        return loop->i + 1 < loop->n ? loop->items[loop->i + 1]
                                     : jv_undefined_hint(j, "there is no next item");
    return loop->i != 0 ? loop->items[loop->i - 1]
                        : jv_undefined_hint(j, "there is no previous item");
}

static struct jval loop_attr(struct jinja *j, struct jval v, const char *name)
{
    const struct jloop *loop = v.loop;
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {
        {"index", (int64_t)loop->i + 1},
        {"index0", (int64_t)loop->i},
        {"revindex", (int64_t)(loop->n - loop->i)},
        {"revindex0", (int64_t)(loop->n - loop->i) - 1},
        {"length", (int64_t)loop->n},
        {"depth", 1},
        {"depth0", 0},
    };

    if (strcmp(name, "first") == 0)
        return jv_bool(loop->i == 0);
    if (strcmp(name, "last") == 0)
        return jv_bool(loop->i + 1 == loop->n);
    if (strcmp(name, "previtem") == 0 || strcmp(name, "nextitem") == 0)
        return loop_item(j, loop, name[0] == 'n');
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        if (strcmp(name, counts[i].name) == 0)
            return jv_int(counts[i].value);
    }
    return jv_undefined_attr(j, v, name);
}

struct jval jinja_getattr(struct jinja *j, struct jval object, const char *name)
{
    const struct jval *found = NULL;
    struct jval method;
    bool has_method;

    if (object.type == JT_UNDEFINED) {
        jinja_raise_undefined(j, object);
        return jv_none();
    }
    method = method_of(j, object, name, &has_method);
    if (has_method)
        return method;
    if (object.type == JT_LOOP)
        return loop_attr(j, object, name);
    if (object.type == JT_DICT || object.type == JT_NAMESPACE)
        found = jv_dict_find_name(j, object.dict, name);
    return found != NULL ? *found : jv_undefined_attr(j, object, name);
}

/* A key's text as a name in messages and tables; NULL when it came from a value of the request,
 * which no message may repeat. */
static const char *key_name(struct jinja *j, const struct jstr *s)
{
    size_t end;

    if (!js_origin(s, 0, &end) || end != s->len)
        return NULL;
    return arena_strndup(&j->arena, s->data, s->len);
}

static struct jval by_string(struct jinja *j, struct jval object, const struct jstr *key)
{
    const char *name = js_name(&j->arena, key);
    struct jval v;
    bool found = false;

    if (name == NULL)
        return jv_undefined_attr(j, object, key_name(j, key));
    v = method_of(j, object, name, &found);
    if (found)
        return v;
    if (object.type == JT_NAMESPACE || object.type == JT_LOOP) {
        v = jinja_getattr(j, object, name);
        if (v.type != JT_UNDEFINED)
            return v;
    }
    return jv_undefined_attr(j, object, key_name(j, key));
}

static struct jval by_index(struct jinja *j, struct jval object, int64_t i)
{
    size_t n = 0, from;

    if (object.type != JT_STRING && (object.type != JT_SEQ || object.seq->kind > SEQ_RANGE))
        return jv_undefined_attr(j, object, NULL);
    jv_length(j, object, &n);
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n)
        return jv_undefined_attr(j, object, NULL);
    if (object.type == JT_SEQ)
        return object.seq->items[i];
    from = js_offset(j, object.s, (size_t)i);
    return jv_str(
        js_slice(j, object.s, from,
                 from + (size_t)utf8_decode(object.s->data + from, object.s->len - from, NULL)));
}

static bool is_key(struct jval v)
{
    return v.type != JT_DICT && !jv_is_seq(v, SEQ_LIST);
}

struct jval jinja_getitem(struct jinja *j, struct jval object, struct jval key)
{
    const struct jval *found;

    if (object.type == JT_UNDEFINED) {
        jinja_raise_undefined(j, object);
        return jv_none();
    }
    if (object.type == JT_DICT && is_key(key)) {
        found = jv_dict_find(j, object.dict, key);
        if (found != NULL)
            return *found;
    }
    if (key.type == JT_STRING)
        return by_string(j, object, key.s);
    if (jv_is_integral(key))
        return by_index(j, object, jv_as_int(key));
    return jv_undefined_attr(j, object, NULL);
}
