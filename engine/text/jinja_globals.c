/* Functions that a template finds by name, and how table functions are called. */
#include "engine/text/jinja_eval.h"

#include <string.h>
#include <time.h>

#include "engine/text/jinja_tables.h"

const struct jfunc *jinja_lookup(const struct jfunc *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

/* One parameter out of "old new count?"; *rest moves on. False at the end. */
static bool next_param(const char **rest, const char **name, size_t *len, bool *optional)
{
    const char *s = *rest + strspn(*rest, " ");
    size_t n = strcspn(s, " ");

    if (n == 0)
        return false;
    *name = s;
    *optional = s[n - 1] == '?';
    *len = n - (*optional ? 1 : 0);
    *rest = s + n;
    return true;
}

static struct jval named_arg(const struct jargs *args, const char *name, size_t len, size_t *used)
{
    for (size_t i = 0; i < args->n_named; i++) {
        if (strncmp(args->names[i], name, len) == 0 && args->names[i][len] == '\0') {
            ++*used;
            return args->named[i];
        }
    }
    return jv_missing();
}

/* Arguments in the order of the parameters; false (and failed) when they don't fit. */
static bool bind(struct jinja *j, const struct jfunc *f, const struct jargs *args, struct jval *out)
{
    const char *rest = f->params, *name;
    size_t n = 0, len, used = 0;
    bool optional;

    for (; next_param(&rest, &name, &len, &optional); n++) {
        out[n] = n < args->n_pos ? args->pos[n] : named_arg(args, name, len, &used);
        if (out[n].type == JT_MISSING && !optional) {
            jinja_raise(j, "%s() lacks the argument '%.*s'", f->name, (int)len, name);
            return false;
        }
    }
    if (args->n_pos > n || used != args->n_named) {
        jinja_raise(j, "%s() got an argument that it does not take", f->name);
        return false;
    }
    return true;
}

struct jval jinja_invoke(struct jinja *j, const struct jfunc *f, struct jval self,
                         const struct jargs *args)
{
    struct jval bound[JINJA_PARAMS_MAX] = {{0}};

    if (!jinja_charge(j, 1))
        return jv_none();
    if (f->call_raw != NULL)
        return f->call_raw(j, self, args);
    return bind(j, f, args, bound) ? f->call(j, self, bound) : jv_none();
}

static int64_t range_length(int64_t start, int64_t stop, int64_t step)
{
    /* In 128 bits, because the bounds may be a whole int64 apart. */
    __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    __int128 size = step > 0 ? (__int128)step : -(__int128)step;
    __int128 n = span <= 0 ? 0 : (span + size - 1) / size;

    return n > INT64_MAX ? INT64_MAX : (int64_t)n;
}

static struct jval global_range(struct jinja *j, struct jval self, const struct jval *a)
{
    int64_t part[3] = {0, 0, 1}, n;
    struct jseq *out;

    (void)self;
    for (int i = 0; i < 3; i++) {
        if (a[i].type != JT_MISSING && !jv_is_integral(a[i])) {
            jinja_raise(j, "'%s' object cannot be interpreted as an integer", jv_type_name(a[i]));
            return jv_none();
        }
        if (a[i].type != JT_MISSING)
            part[i] = jv_as_int(a[i]);
    }
    if (a[1].type == JT_MISSING) {
        part[1] = part[0];
        part[0] = 0;
    }
    if (part[2] == 0) {
        jinja_raise(j, "range() arg 3 must not be zero");
        return jv_none();
    }
    n = range_length(part[0], part[1], part[2]);
    if (n > JINJA_RANGE_MAX) {
        jinja_raise(j, "range() of more than %d items", JINJA_RANGE_MAX);
        return jv_none();
    }
    out = jv_seq_new(j, SEQ_RANGE, (size_t)n);
    if (out == NULL)
        return jv_none();
    out->start = part[0];
    out->stop = part[1];
    out->step = part[2];
    for (int64_t i = 0; i < n; i++)
        /* In 128 bits, as in range_length: a step may take up half of int64. */
        out->items[i] = jv_int((int64_t)(part[0] + (__int128)i * part[2]));
    return jv_seq(out);
}

static void put_pairs(struct jinja *j, struct jdict *d, struct jval pairs)
{
    struct jseq all;

    if (pairs.type == JT_DICT) {
        for (size_t i = 0; i < pairs.dict->n && j->status == ST_OK; i++)
            jv_dict_put(j, d, pairs.dict->keys[i], pairs.dict->values[i]);
        return;
    }
    all = jv_iterate(j, pairs);
    for (size_t i = 0; i < all.n && j->status == ST_OK; i++) {
        struct jseq pair = jv_iterate(j, all.items[i]);

        if (pair.n == 2)
            jv_dict_put(j, d, pair.items[0], pair.items[1]);
        else
            jinja_raise(j, "dict() needs pairs");
    }
}

/* dict(pairs, name=value, ...) */
static struct jdict *make_dict(struct jinja *j, const struct jargs *args)
{
    struct jdict *d = jv_dict_new(j);

    if (args->n_pos > 1)
        jinja_raise(j, "dict expected at most 1 argument, got %zu", args->n_pos);
    if (args->n_pos == 1)
        put_pairs(j, d, args->pos[0]);
    for (size_t i = 0; i < args->n_named && j->status == ST_OK; i++)
        jv_dict_put(j, d, jv_str(js_new(j, args->names[i], strlen(args->names[i]), true)),
                    args->named[i]);
    return d;
}

static struct jval global_dict(struct jinja *j, struct jval self, const struct jargs *args)
{
    (void)self;
    return jv_dict(make_dict(j, args));
}

static struct jval global_namespace(struct jinja *j, struct jval self, const struct jargs *args)
{
    struct jval v = jv_dict(make_dict(j, args));

    (void)self;
    if (v.type == JT_DICT)
        v.type = JT_NAMESPACE;
    return v;
}

static struct jval global_raise(struct jinja *j, struct jval self, const struct jval *a)
{
    const struct jstr *s = jinja_str(j, a[0]);

    (void)self;
    if (j->status == ST_OK)
        j->status = fail(j->why, ST_INVALID, "%.*s", (int)(s->len < 1000 ? s->len : 1000), s->data);
    return jv_none();
}

/* Hugging Face's takes the machine's local time; a server's answers must not depend on that. */
static struct jval global_strftime_now(struct jinja *j, struct jval self, const struct jval *a)
{
    time_t now = (time_t)j->now_s;
    const struct jstr *fmt = jinja_str(j, a[0]);
    const char *zero = js_name(&j->arena, fmt);
    char text[512];
    struct tm tm;
    size_t n;

    (void)self;
    if (zero == NULL || gmtime_r(&now, &tm) == NULL) {
        jinja_raise(j, "strftime_now() can't take this format");
        return jv_str(&js_empty);
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the format is the template's */
    n = strftime(text, sizeof text, zero, &tm);
#pragma GCC diagnostic pop
    /* Too long a text, or nothing but an empty field: no date either way. */
    if (n == 0 && zero[0] != '\0') {
        jinja_raise(j, "strftime_now() gives no text, or more than %zu bytes", sizeof text - 1);
        return jv_str(&js_empty);
    }
    zero = arena_strndup(&j->arena, text, n);
    return jv_str(zero == NULL ? &js_empty : js_new(j, zero, n, false));
}

static const struct jfunc globals[] = {
    {"range", "start stop? step?", global_range, NULL},
    {"dict", NULL, NULL, global_dict},
    {"namespace", NULL, NULL, global_namespace},
    {"raise_exception", "message", global_raise, NULL},
    {"strftime_now", "format", global_strftime_now, NULL},
};

const struct jfunc *jinja_global(const char *name)
{
    return jinja_lookup(globals, COUNT_OF(globals), name);
}
