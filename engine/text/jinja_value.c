#include "engine/text/jinja_value.h"

#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_run.h"

static struct jval undefined(struct jinja *j, struct jundef what)
{
    static const struct jundef anonymous = {.hint = "the value is undefined"};
    struct jundef *u = jinja_alloc(j, 1, sizeof *u);

    if (u == NULL)
        return (struct jval){.type = JT_UNDEFINED, .undef = &anonymous};
    *u = what;
    return (struct jval){.type = JT_UNDEFINED, .undef = u};
}

struct jval jv_undefined(struct jinja *j, const char *name)
{
    return undefined(j, (struct jundef){.name = name});
}

struct jval jv_undefined_attr(struct jinja *j, struct jval object, const char *name)
{
    const char *type = object.type == JT_NONE ? "None" : jv_type_name(object);

    return undefined(j, (struct jundef){.name = name, .object = type});
}

struct jval jv_undefined_hint(struct jinja *j, const char *hint)
{
    return undefined(j, (struct jundef){.hint = hint});
}

struct jseq *jv_seq_new(struct jinja *j, enum jseq_kind kind, size_t n)
{
    struct jseq *seq = jinja_alloc(j, 1, sizeof *seq);
    struct jval *items = seq == NULL || n == 0 ? NULL : jinja_alloc(j, n, sizeof *items);

    if (seq == NULL || (n != 0 && items == NULL) || !jinja_charge(j, n / 8))
        return NULL;
    *seq = (struct jseq){.kind = kind, .items = items, .n = n};
    return seq;
}

struct jval jv_seq(struct jseq *seq)
{
    static const struct jundef failed = {.hint = "the value is undefined"};

    if (seq == NULL)
        return (struct jval){.type = JT_UNDEFINED, .undef = &failed};
    return (struct jval){.type = JT_SEQ, .seq = seq};
}

/* Capacities are powers of two from 4, so the moment to grow shows in n itself. */
void jv_seq_push(struct jinja *j, struct jseq *seq, struct jval v)
{
    if (seq == NULL || !jinja_charge(j, 1))
        return;
    if (seq->n == 0 || (seq->n >= 4 && (seq->n & (seq->n - 1)) == 0)) {
        struct jval *items = jinja_alloc(j, seq->n == 0 ? 4 : seq->n * 2, sizeof *items);

        if (items == NULL)
            return;
        if (seq->n != 0)
            memcpy(items, seq->items, seq->n * sizeof *items);
        seq->items = items;
    }
    seq->items[seq->n++] = v;
}

struct jval jv_pair(struct jinja *j, struct jval a, struct jval b)
{
    struct jseq *t = jv_seq_new(j, SEQ_TUPLE, 2);

    if (t != NULL) {
        t->items[0] = a;
        t->items[1] = b;
    }
    return jv_seq(t);
}

struct jdict *jv_dict_new(struct jinja *j)
{
    return jinja_alloc(j, 1, sizeof(struct jdict));
}

struct jval jv_dict(struct jdict *d)
{
    return d == NULL ? jv_seq(NULL) : (struct jval){.type = JT_DICT, .dict = d};
}

static bool dict_grow(struct jinja *j, struct jdict *d)
{
    size_t cap = d->cap == 0 ? 4 : d->cap * 2;
    struct jval *keys, *values;

    if (d->n < d->cap)
        return true;
    keys = jinja_alloc(j, cap, sizeof *keys);
    values = jinja_alloc(j, cap, sizeof *values);
    if (keys == NULL || values == NULL)
        return false;
    if (d->n != 0) {
        memcpy(keys, d->keys, d->n * sizeof *keys);
        memcpy(values, d->values, d->n * sizeof *values);
    }
    d->keys = keys;
    d->values = values;
    d->cap = cap;
    return true;
}

void jv_dict_push(struct jinja *j, struct jdict *d, struct jval key, struct jval value)
{
    if (d == NULL || !jinja_charge(j, 1) || !dict_grow(j, d))
        return;
    d->keys[d->n] = key;
    d->values[d->n++] = value;
}

static bool is_hashable(struct jinja *j, struct jval v)
{
    bool hashable = v.type != JT_DICT && !jv_is_seq(v, SEQ_LIST);

    if (!jv_is_seq(v, SEQ_TUPLE))
        return hashable;
    if (!jinja_enter_value(j))
        return false;
    for (size_t i = 0; hashable && i < v.seq->n; i++)
        hashable = jinja_charge(j, i % 8 == 0) && is_hashable(j, v.seq->items[i]);
    jinja_leave_value(j);
    return hashable;
}

static struct jval *dict_find(struct jinja *j, const struct jdict *d, struct jval key)
{
    if (!is_hashable(j, key)) {
        jinja_raise(j, "unhashable type: '%s'", jv_type_name(key));
        return NULL;
    }
    for (size_t i = 0; i < d->n; i++) {
        if (i % 8 == 0 && !jinja_charge(j, 1))
            return NULL;
        if (jv_equal(j, d->keys[i], key))
            return &d->values[i];
    }
    return NULL;
}

void jv_dict_put(struct jinja *j, struct jdict *d, struct jval key, struct jval value)
{
    struct jval *at = d == NULL ? NULL : dict_find(j, d, key);

    if (at != NULL)
        *at = value;
    else
        jv_dict_push(j, d, key, value);
}

const struct jval *jv_dict_find(struct jinja *j, const struct jdict *d, struct jval key)
{
    return dict_find(j, d, key);
}

const struct jval *jv_dict_find_name(struct jinja *j, const struct jdict *d, const char *name)
{
    struct jstr s = js_of(name, strlen(name), false);

    return dict_find(j, d, jv_str(&s));
}

bool jv_is_seq(struct jval v, enum jseq_kind kind)
{
    return v.type == JT_SEQ && v.seq->kind == kind;
}

bool jv_is_integral(struct jval v)
{
    return v.type == JT_BOOL || v.type == JT_INT;
}

bool jv_is_number(struct jval v)
{
    return jv_is_integral(v) || v.type == JT_FLOAT;
}

int64_t jv_as_int(struct jval v)
{
    return v.type == JT_BOOL ? v.b : v.i;
}

double jv_as_float(struct jval v)
{
    return v.type == JT_FLOAT ? v.f : (double)jv_as_int(v);
}

bool jv_is_true(struct jval v)
{
    switch (v.type) {
    case JT_MISSING:
    case JT_UNDEFINED:
    case JT_NONE:
        return false;
    case JT_BOOL:
        return v.b;
    case JT_INT:
        return v.i != 0;
    case JT_FLOAT:
        return v.f != 0;
    case JT_STRING:
        return v.s->len != 0;
    case JT_SEQ:
        return v.seq->kind == SEQ_GENERATOR || v.seq->n != 0;
    case JT_DICT:
        return v.dict->n != 0;
    case JT_LOOP:
        return v.loop->n != 0;
    default:
        return true;
    }
}

const char *jv_type_name(struct jval v)
{
    static const char *const names[] = {
        [JT_MISSING] = "Undefined", [JT_UNDEFINED] = "Undefined",
        [JT_NONE] = "NoneType",     [JT_BOOL] = "bool",
        [JT_INT] = "int",           [JT_FLOAT] = "float",
        [JT_STRING] = "str",        [JT_SEQ] = "list",
        [JT_DICT] = "dict",         [JT_NAMESPACE] = "Namespace",
        [JT_LOOP] = "LoopContext",  [JT_MACRO] = "Macro",
        [JT_BUILTIN] = "function",  [JT_METHOD] = "builtin_function_or_method",
    };
    static const char *const seq_names[] = {
        [SEQ_LIST] = "list",           [SEQ_TUPLE] = "tuple",    [SEQ_RANGE] = "range",
        [SEQ_ITEMS] = "dict_items",    [SEQ_KEYS] = "dict_keys", [SEQ_VALUES] = "dict_values",
        [SEQ_GENERATOR] = "generator",
    };

    return v.type == JT_SEQ ? seq_names[v.seq->kind] : names[v.type];
}

static struct jseq characters(struct jinja *j, const struct jstr *s)
{
    struct jseq out = {.kind = SEQ_LIST};

    if (s->markup) { /* markup's characters are plain text */
        struct jstr *plain = jinja_alloc(j, 1, sizeof *plain);

        if (plain == NULL)
            return out;
        *plain = *s;
        plain->markup = false;
        s = plain;
    }
    for (size_t pos = 0; pos < s->len && j->status == ST_OK;) {
        int n = utf8_decode(s->data + pos, s->len - pos, NULL);

        jv_seq_push(j, &out, jv_str(js_slice(j, s, pos, pos + (size_t)n)));
        pos += (size_t)n;
    }
    return out;
}

struct jseq jv_iterate(struct jinja *j, struct jval v)
{
    struct jseq out = {.kind = SEQ_LIST};

    switch (v.type) {
    case JT_UNDEFINED:
        return out;
    case JT_STRING:
        return characters(j, v.s);
    case JT_DICT:
        out.items = v.dict->keys;
        out.n = v.dict->n;
        return out;
    case JT_SEQ:
        out.items = v.seq->items == NULL ? NULL : v.seq->items + v.seq->next;
        out.n = v.seq->n - v.seq->next;
        if (v.seq->kind == SEQ_GENERATOR)
            v.seq->next = v.seq->n;
        return out;
    default:
        jinja_raise(j, "'%s' object is not iterable", jv_type_name(v));
        return out;
    }
}

bool jv_length(struct jinja *j, struct jval v, size_t *out)
{
    if (v.type == JT_UNDEFINED)
        *out = 0;
    else if (v.type == JT_STRING)
        *out = js_count(j, v.s);
    else if (v.type == JT_DICT)
        *out = v.dict->n;
    else if (v.type == JT_LOOP)
        *out = v.loop->n;
    else if (v.type == JT_SEQ && v.seq->kind != SEQ_GENERATOR)
        *out = v.seq->n;
    else
        return false;
    return true;
}
