/* JSON in (values of the request) and out (the tojson filter, as Hugging Face defines it:
 * json.dumps without escaping what is not ASCII). */
#include "engine/text/jinja_eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static struct jval from_array(struct jinja *j, const json_t *doc)
{
    struct jseq *seq = jv_seq_new(j, SEQ_LIST, json_array_size(doc));

    for (size_t i = 0; seq != NULL && i < seq->n; i++)
        seq->items[i] = jinja_from_json(j, json_array_get(doc, i));
    return jv_seq(seq);
}

static struct jval from_object(struct jinja *j, const json_t *doc)
{
    struct jdict *d = jv_dict_new(j);
    /* jansson's iterator takes a non-const object and only reads it. */
    json_t *object = (json_t *)(uintptr_t)doc;

    for (void *it = json_object_iter(object); it != NULL && j->status == ST_OK;
         it = json_object_iter_next(object, it)) {
        const char *key = json_object_iter_key(it);

        jv_dict_push(j, d, jv_str(js_cstr(j, key)), jinja_from_json(j, json_object_iter_value(it)));
    }
    return jv_dict(d);
}

/* Strings are borrowed from the document. */
struct jval jinja_from_json(struct jinja *j, const json_t *doc)
{
    struct jval v = jv_none();

    if (doc == NULL || !jinja_enter_value(j))
        return v;
    switch (json_typeof(doc)) {
    case JSON_OBJECT:
        v = from_object(j, doc);
        break;
    case JSON_ARRAY:
        v = from_array(j, doc);
        break;
    case JSON_STRING:
        v = jv_str(js_new(j, json_string_value(doc), json_string_length(doc), false));
        break;
    case JSON_INTEGER:
        v = jv_int(json_integer_value(doc));
        break;
    case JSON_REAL:
        v = jv_float(json_real_value(doc));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = jv_bool(json_is_true(doc));
        break;
    case JSON_NULL:
        break;
    }
    jinja_leave_value(j);
    return v;
}

struct dumper {
    struct jtext text;
    bool ensure_ascii, sort_keys;
    const struct jstr *indent; /* of one level; NULL: all on one line */
    const struct jstr *item_separator, *key_separator;
    size_t level;
};

static void put(struct dumper *d, const char *s, size_t len)
{
    jt_add(&d->text, s, len, false);
}

/* Text that the template gave as an option is still part of a value's text. */
static void put_option(struct dumper *d, const struct jstr *s)
{
    put(d, s->data, s->len);
}

static void put_escaped(struct dumper *d, uint32_t cp)
{
    static const char names[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *name = cp != 0 && cp < 0x80 ? strchr(names, (int)cp) : NULL;
    char text[16];
    int n;

    if (name != NULL)
        n = snprintf(text, sizeof text, "\\%c", letters[name - names]);
    else if (cp >= 0x10000)
        n = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                     0xDC00 + (cp & 0x3FF));
    else
        n = snprintf(text, sizeof text, "\\u%04x", cp);
    put(d, text, (size_t)n);
}

static void dump_string(struct dumper *d, const struct jstr *s)
{
    size_t from = 0, pos = 0;

    put(d, "\"", 1);
    while (pos < s->len && d->text.j->status == ST_OK) {
        uint32_t cp = 0;
        size_t n = (size_t)utf8_decode(s->data + pos, s->len - pos, &cp);

        if (cp < 0x20 || cp == '"' || cp == '\\' || (d->ensure_ascii && cp >= 0x7F + 1)) {
            put(d, s->data + from, pos - from);
            put_escaped(d, cp);
            from = pos + n;
            jinja_charge(d->text.j, 1);
        }
        pos += n;
    }
    put(d, s->data + from, pos - from);
    put(d, "\"", 1);
}

static void new_line(struct dumper *d)
{
    if (d->indent == NULL)
        return;
    put(d, "\n", 1);
    for (size_t i = 0; i < d->level; i++)
        put_option(d, d->indent);
}

static void dump(struct dumper *d, struct jval v);

static void dump_seq(struct dumper *d, const struct jseq *s)
{
    put(d, "[", 1);
    d->level++;
    for (size_t i = 0; i < s->n && d->text.j->status == ST_OK; i++) {
        if (i != 0)
            put_option(d, d->item_separator);
        new_line(d);
        dump(d, s->items[i]);
    }
    d->level--;
    if (s->n != 0)
        new_line(d);
    put(d, "]", 1);
}

static void dump_number(struct dumper *d, struct jval v)
{
    char text[JINJA_FLOAT_BYTES];

    if (v.type == JT_INT)
        snprintf(text, sizeof text, "%lld", (long long)v.i);
    else if (isnan(v.f))
        snprintf(text, sizeof text, "NaN");
    else if (isinf(v.f))
        snprintf(text, sizeof text, v.f > 0 ? "Infinity" : "-Infinity");
    else
        jinja_float_repr(v.f, text);
    put(d, text, strlen(text));
}

static void dump_word(struct dumper *d, struct jval v)
{
    const char *word = v.type == JT_NONE ? "null" : v.b ? "true" : "false";

    put(d, word, strlen(word));
}

static void dump_key(struct dumper *d, struct jval key)
{
    if (key.type == JT_STRING) {
        dump_string(d, key.s);
    } else if (key.type == JT_NONE || jv_is_number(key)) {
        put(d, "\"", 1);
        dump(d, key);
        put(d, "\"", 1);
    } else {
        jinja_raise(d->text.j, "keys must be str, int, float, bool or None, not %s",
                    jv_type_name(key));
    }
    put_option(d, d->key_separator);
}

/* Order of the entries: NULL for the dict's own. */
static size_t *sorted(struct dumper *d, const struct jdict *dict)
{
    struct jinja *j = d->text.j;
    size_t *order = d->sort_keys ? jinja_alloc(j, dict->n + 1, sizeof *order) : NULL;

    for (size_t i = 0; order != NULL && i < dict->n; i++) {
        size_t at = i;

        while (at > 0 && jinja_charge(j, 1) &&
               jv_compare(j, dict->keys[order[at - 1]], dict->keys[i], "<") > 0) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    return order;
}

static void dump_dict(struct dumper *d, const struct jdict *dict)
{
    size_t *order = sorted(d, dict);

    put(d, "{", 1);
    d->level++;
    for (size_t i = 0; i < dict->n && d->text.j->status == ST_OK; i++) {
        size_t at = order == NULL ? i : order[i];

        if (i != 0)
            put_option(d, d->item_separator);
        new_line(d);
        dump_key(d, dict->keys[at]);
        dump(d, dict->values[at]);
    }
    d->level--;
    if (dict->n != 0)
        new_line(d);
    put(d, "}", 1);
}

static void dump(struct dumper *d, struct jval v)
{
    if (!jinja_enter_value(d->text.j))
        return;
    if (v.type == JT_STRING)
        dump_string(d, v.s);
    else if (v.type == JT_DICT)
        dump_dict(d, v.dict);
    else if (jv_is_seq(v, SEQ_LIST) || jv_is_seq(v, SEQ_TUPLE))
        dump_seq(d, v.seq);
    else if (v.type == JT_NONE || v.type == JT_BOOL)
        dump_word(d, v);
    else if (jv_is_number(v))
        dump_number(d, v);
    else
        jinja_raise(d->text.j, "Object of type %s is not JSON serializable", jv_type_name(v));
    jinja_leave_value(d->text.j);
}

static const struct jstr *spaces(struct jinja *j, int64_t n)
{
    struct jtext t;

    jt_init(&t, j);
    if (n > 1000)
        jinja_stop(j, ST_TOO_LARGE, "indents too far");
    for (int64_t i = 0; i < n && j->status == ST_OK; i++)
        jt_add(&t, " ", 1, false);
    return jt_finish(&t);
}

static void set_separators(struct jinja *j, struct dumper *d, struct jval v)
{
    d->item_separator = js_cstr(j, d->indent == NULL ? ", " : ",");
    d->key_separator = js_cstr(j, ": ");
    if (v.type == JT_MISSING || v.type == JT_NONE)
        return;
    if (v.type != JT_SEQ || v.seq->n != 2 || v.seq->items[0].type != JT_STRING ||
        v.seq->items[1].type != JT_STRING) {
        jinja_raise(j, "separators must be two strings");
        return;
    }
    d->item_separator = v.seq->items[0].s;
    d->key_separator = v.seq->items[1].s;
}

/* a: ensure_ascii, indent, separators, sort_keys. */
struct jval jinja_filter_tojson(struct jinja *j, struct jval self, const struct jval *a)
{
    struct dumper d = {.ensure_ascii = jv_is_true(a[0]), .sort_keys = jv_is_true(a[3])};

    jt_init(&d.text, j);
    if (jv_is_integral(a[1]))
        d.indent = spaces(j, jv_as_int(a[1]));
    else if (a[1].type == JT_STRING)
        d.indent = a[1].s;
    set_separators(j, &d, a[2]);
    dump(&d, self);
    return jv_str(jt_finish(&d.text));
}
