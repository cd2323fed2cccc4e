/* str.format, as far as templates go: {}, {0} and {name}, with !s and !r. Attributes, indices and
 * format specifications are refused when they are reached. */
#include "engine/text/jinja_eval.h"

#include <string.h>

#include "engine/text/jinja_str.h"

struct formatter {
    struct jinja *j;
    const struct jargs *args;
    struct jtext text;
    size_t next;          /* of the fields without a number */
    bool counts, numbers; /* which of the two kinds was seen */
};

static struct jval positional(struct formatter *f, size_t i)
{
    if (i < f->args->n_pos)
        return f->args->pos[i];
    jinja_raise(f->j, "Replacement index %zu out of range for positional args tuple", i);
    return jv_none();
}

static struct jval named(struct formatter *f, const char *name, size_t len)
{
    for (size_t i = 0; i < f->args->n_named; i++) {
        if (strlen(f->args->names[i]) == len && memcmp(f->args->names[i], name, len) == 0)
            return f->args->named[i];
    }
    jinja_raise(f->j, "format() lacks a keyword argument");
    return jv_none();
}

/* The value that a field's name stands for. */
static struct jval find(struct formatter *f, const char *name, size_t len)
{
    size_t number = 0, i = 0;

    if (memchr(name, '.', len) != NULL || memchr(name, '[', len) != NULL) {
        jinja_raise(f->j, "format() with attributes or indices is not supported");
        return jv_none();
    }
    for (; i < len && i < 4 && name[i] >= '0' && name[i] <= '9'; i++)
        number = number * 10 + (size_t)(name[i] - '0');
    if (i < len)
        return named(f, name, len);
    f->counts = f->counts || len == 0;
    f->numbers = f->numbers || len != 0;
    if (f->counts && f->numbers)
        jinja_raise(f->j, "cannot switch between automatic field numbering and manual field "
                          "specification");
    return positional(f, len == 0 ? f->next++ : number);
}

/* What stands between the braces. */
static void put_field(struct formatter *f, const char *field, size_t len)
{
    const char *colon = memchr(field, ':', len), *mark;
    size_t name = colon == NULL ? len : (size_t)(colon - field);
    bool repr = false;
    struct jval v;

    if (colon != NULL && name + 1 != len)
        jinja_raise(f->j, "format() with a format specification is not supported");
    mark = memchr(field, '!', name);
    if (mark != NULL) {
        size_t at = (size_t)(mark - field);

        repr = at + 2 == name && field[at + 1] == 'r';
        if (at + 2 != name || (!repr && field[at + 1] != 's'))
            jinja_raise(f->j, "format() with this conversion is not supported");
        name = at;
    }
    v = find(f, field, name);
    if (f->j->status != ST_OK)
        return;
    if (repr)
        jinja_add_repr(&f->text, v);
    else
        jinja_add_str(&f->text, v);
}

/* Puts the field or doubled brace at `at`; returns the position after it. */
static size_t put_brace(struct formatter *f, const struct jstr *s, size_t at)
{
    const char *close;
    size_t len;

    if (at + 1 < s->len && s->data[at + 1] == s->data[at]) {
        jt_add_slice(&f->text, s, at, at + 1);
        return at + 2;
    }
    close = s->data[at] == '}' ? NULL : memchr(s->data + at, '}', s->len - at);
    if (close == NULL) {
        jinja_raise(f->j, "Single '%c' encountered in format string", s->data[at]);
        return s->len;
    }
    len = (size_t)(close - s->data) - at - 1;
    if (memchr(s->data + at + 1, '{', len) != NULL)
        jinja_raise(f->j, "format() with nested fields is not supported");
    put_field(f, s->data + at + 1, len);
    return at + len + 2;
}

struct jval jinja_str_format(struct jinja *j, struct jval self, const struct jargs *args)
{
    struct formatter f = {.j = j, .args = args};
    const struct jstr *s = self.s;
    size_t from = 0, at = 0;

    jt_init(&f.text, j);
    if (s->markup)
        jinja_raise(j, "format() of safe text is not supported");
    while (at < s->len && jinja_charge(j, at % 64 == 0)) {
        if (s->data[at] != '{' && s->data[at] != '}') {
            at++;
            continue;
        }
        jt_add_slice(&f.text, s, from, at);
        from = at = put_brace(&f, s, at);
        if (!jinja_charge(j, 1))
            break;
    }
    if (j->status == ST_OK)
        jt_add_slice(&f.text, s, from, s->len);
    return jv_str(jt_finish(&f.text));
}
