/* Methods of strings. Pieces keep their origin. */
#include "engine/text/jinja_str.h"

#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_eval.h"
#include "engine/text/jinja_lex.h"
#include "engine/text/jinja_tables.h"

const struct jstr *jinja_string_arg(struct jinja *j, struct jval v)
{
    if (v.type == JT_STRING)
        return v.s;
    jinja_raise(j, "must be str, not %s", jv_type_name(v));
    return &js_empty;
}

int64_t jinja_int_arg(struct jinja *j, struct jval v, int64_t missing)
{
    if (v.type == JT_MISSING)
        return missing;
    if (jv_is_integral(v))
        return jv_as_int(v);
    jinja_raise(j, "'%s' object cannot be interpreted as an integer", jv_type_name(v));
    return missing;
}

/* Bytes of the character at s if it is one to strip (chars NULL: white space); 0: it stays. */
static size_t strippable(struct jinja *j, const char *s, size_t len, const struct jstr *chars)
{
    int n = utf8_decode(s, len, NULL);

    if (chars == NULL)
        return lex_space(s, len);
    if (!jinja_charge(j, chars->len / 64))
        return 0;
    return memmem(chars->data, chars->len, s, (size_t)n) != NULL ? (size_t)n : 0;
}

const struct jstr *jinja_strip(struct jinja *j, const struct jstr *s, const struct jstr *chars,
                               enum jinja_sides sides)
{
    size_t from = 0, to = s->len, n;

    while ((sides & STRIP_LEFT) != 0 && from < to &&
           (n = strippable(j, s->data + from, to - from, chars)) != 0)
        from += n;
    while ((sides & STRIP_RIGHT) != 0 && to > from) {
        size_t last = to - 1;

        while (last > from && (s->data[last] & 0xC0) == 0x80)
            last--;
        if (strippable(j, s->data + last, to - last, chars) == 0)
            break;
        to = last;
    }
    jinja_charge(j, (s->len - (to - from)) / 8);
    return js_slice(j, s, from, to);
}

static struct jval strip(struct jinja *j, struct jval self, const struct jval *a,
                         enum jinja_sides sides)
{
    bool all = a[0].type == JT_MISSING || a[0].type == JT_NONE;

    return jv_str(jinja_strip(j, self.s, all ? NULL : jinja_string_arg(j, a[0]), sides));
}

static struct jval str_strip(struct jinja *j, struct jval self, const struct jval *a)
{
    return strip(j, self, a, STRIP_LEFT | STRIP_RIGHT);
}

static struct jval str_lstrip(struct jinja *j, struct jval self, const struct jval *a)
{
    return strip(j, self, a, STRIP_LEFT);
}

static struct jval str_rstrip(struct jinja *j, struct jval self, const struct jval *a)
{
    return strip(j, self, a, STRIP_RIGHT);
}

static struct jval str_splitlines(struct jinja *j, struct jval self, const struct jval *a)
{
    return jv_seq(jinja_splitlines(j, self.s, jv_is_true(a[0])));
}

static bool has_affix(struct jinja *j, const struct jstr *s, const struct jstr *affix, bool end)
{
    return affix->len <= s->len && jinja_charge(j, affix->len / 256) &&
           memcmp(s->data + (end ? s->len - affix->len : 0), affix->data, affix->len) == 0;
}

/* startswith and endswith take a string or a tuple of them. */
static struct jval affix(struct jinja *j, struct jval self, const struct jval *a, bool end)
{
    bool any = false;

    if (a[1].type != JT_MISSING) {
        jinja_raise(j, "startswith and endswith with a position are not supported");
        return jv_none();
    }
    if (!jv_is_seq(a[0], SEQ_TUPLE))
        return jv_bool(has_affix(j, self.s, jinja_string_arg(j, a[0]), end));
    for (size_t i = 0; i < a[0].seq->n && jinja_charge(j, 1); i++)
        any = any || has_affix(j, self.s, jinja_string_arg(j, a[0].seq->items[i]), end);
    return jv_bool(any);
}

static struct jval str_startswith(struct jinja *j, struct jval self, const struct jval *a)
{
    return affix(j, self, a, false);
}

static struct jval str_endswith(struct jinja *j, struct jval self, const struct jval *a)
{
    return affix(j, self, a, true);
}

static struct jval remove_affix(struct jinja *j, struct jval self, const struct jval *a, bool end)
{
    const struct jstr *s = self.s, *cut = jinja_string_arg(j, a[0]);

    if (!has_affix(j, s, cut, end))
        return self;
    return jv_str(js_slice(j, s, end ? 0 : cut->len, end ? s->len - cut->len : s->len));
}

static struct jval str_removeprefix(struct jinja *j, struct jval self, const struct jval *a)
{
    return remove_affix(j, self, a, false);
}

static struct jval str_removesuffix(struct jinja *j, struct jval self, const struct jval *a)
{
    return remove_affix(j, self, a, true);
}

static struct jval str_upper(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_case(j, self.s, CASE_UPPER));
}

static struct jval str_lower(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_case(j, self.s, CASE_LOWER));
}

static struct jval str_title(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_case(j, self.s, CASE_TITLE));
}

static struct jval str_capitalize(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return jv_str(jinja_case(j, self.s, CASE_CAPITAL));
}

/* An empty `old` stands before every character and at the end, as in Python. */
static void replace_between(struct jinja *j, struct jtext *t, const struct jstr *s,
                            const struct jstr *with, int64_t max)
{
    size_t pos = 0;

    while (pos < s->len && max != 0 && jinja_charge(j, 1)) {
        size_t n = (size_t)utf8_decode(s->data + pos, s->len - pos, NULL);

        jt_add_str(t, with);
        jt_add_slice(t, s, pos, pos + n);
        pos += n;
        max--;
    }
    if (max != 0)
        jt_add_str(t, with);
    jt_add_slice(t, s, pos, s->len);
}

const struct jstr *jinja_replace(struct jinja *j, const struct jstr *s, const struct jstr *old,
                                 const struct jstr *with, int64_t max)
{
    struct jtext t;
    size_t from = 0, at;

    jt_init(&t, j);
    if (old->len == 0) {
        replace_between(j, &t, s, with, max);
        return jt_finish(&t);
    }
    while (max-- != 0 && jinja_charge(j, 1) && (at = js_find(j, s, old, from)) != SIZE_MAX) {
        jt_add_slice(&t, s, from, at);
        jt_add_str(&t, with);
        from = at + old->len;
    }
    jt_add_slice(&t, s, from, s->len);
    return from == 0 ? s : jt_finish(&t);
}

/* Text put into markup by its methods is escaped, and what comes out is markup. */
static const struct jstr *put_in(struct jinja *j, const struct jstr *into, const struct jstr *s)
{
    return into->markup ? jinja_str(j, jinja_filter_escape(j, jv_str(s), NULL)) : s;
}

static struct jval made_from(struct jinja *j, const struct jstr *from, const struct jstr *s)
{
    return from->markup ? jinja_filter_safe(j, jv_str(s), NULL) : jv_str(s);
}

static struct jval str_replace(struct jinja *j, struct jval self, const struct jval *a)
{
    const struct jstr *old = jinja_string_arg(j, a[0]), *with = jinja_string_arg(j, a[1]);
    int64_t max = jinja_int_arg(j, a[2], -1);

    with = put_in(j, self.s, with);
    return made_from(j, self.s, jinja_replace(j, self.s, old, with, max < 0 ? -1 : max));
}

/* Index in code points of a byte position; -1 for none. */
static struct jval position(struct jinja *j, const struct jstr *s, size_t at)
{
    return jv_int(at == SIZE_MAX ? -1 : (int64_t)js_count(j, js_slice(j, s, 0, at)));
}

static struct jval str_find(struct jinja *j, struct jval self, const struct jval *a)
{
    int64_t from = jinja_int_arg(j, a[1], 0);

    if (from < 0) {
        from += (int64_t)js_count(j, self.s);
        from = from < 0 ? 0 : from;
    }
    if (from > (int64_t)js_count(j, self.s))
        return jv_int(-1);
    return position(
        j, self.s,
        js_find(j, self.s, jinja_string_arg(j, a[0]), js_offset(j, self.s, (size_t)from)));
}

static struct jval str_rfind(struct jinja *j, struct jval self, const struct jval *a)
{
    return position(j, self.s, js_rfind(j, self.s, jinja_string_arg(j, a[0])));
}

static struct jval found(struct jinja *j, struct jval at)
{
    if (at.i < 0)
        jinja_raise(j, "substring not found");
    return at;
}

static struct jval str_index(struct jinja *j, struct jval self, const struct jval *a)
{
    return found(j, str_find(j, self, a));
}

static struct jval str_rindex(struct jinja *j, struct jval self, const struct jval *a)
{
    return found(j, str_rfind(j, self, a));
}

static struct jval str_count(struct jinja *j, struct jval self, const struct jval *a)
{
    const struct jstr *sub = jinja_string_arg(j, a[0]);
    int64_t n = 0;
    size_t at = 0;

    if (sub->len == 0)
        return jv_int((int64_t)js_count(j, self.s) + 1);
    while (jinja_charge(j, 1) && (at = js_find(j, self.s, sub, at)) != SIZE_MAX) {
        at += sub->len;
        n++;
    }
    return jv_int(n);
}

static struct jval str_join(struct jinja *j, struct jval self, const struct jval *a)
{
    struct jseq items = jv_iterate(j, a[0]);
    struct jtext t;

    jt_init(&t, j);
    for (size_t i = 0; i < items.n && jinja_charge(j, 1); i++) {
        if (i != 0)
            jt_add_str(&t, self.s);
        jt_add_str(&t, put_in(j, self.s, jinja_string_arg(j, items.items[i])));
    }
    return made_from(j, self.s, jt_finish(&t));
}

static struct jval all_of(struct jinja *j, struct jval self, enum jclass c)
{
    jinja_charge(j, self.s->len / 16);
    return jv_bool(jinja_all_of(self.s, c));
}

static struct jval str_isalpha(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return all_of(j, self, CLASS_ALPHA);
}

static struct jval str_isdigit(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return all_of(j, self, CLASS_DIGIT);
}

static struct jval str_isalnum(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return all_of(j, self, CLASS_ALNUM);
}

static struct jval str_isspace(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    return all_of(j, self, CLASS_SPACE);
}

static struct jval str_isupper(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    jinja_charge(j, self.s->len / 16);
    return jv_bool(jinja_has_case(self.s, true));
}

static struct jval str_islower(struct jinja *j, struct jval self, const struct jval *a)
{
    (void)a;
    jinja_charge(j, self.s->len / 16);
    return jv_bool(jinja_has_case(self.s, false));
}

static const struct jfunc methods[] = {
    {"strip", "chars?", str_strip, NULL},
    {"lstrip", "chars?", str_lstrip, NULL},
    {"rstrip", "chars?", str_rstrip, NULL},
    {"split", "sep? maxsplit?", jinja_str_split, NULL},
    {"rsplit", "sep? maxsplit?", jinja_str_rsplit, NULL},
    {"splitlines", "keepends?", str_splitlines, NULL},
    {"startswith", "prefix start?", str_startswith, NULL},
    {"endswith", "suffix start?", str_endswith, NULL},
    {"removeprefix", "prefix", str_removeprefix, NULL},
    {"removesuffix", "suffix", str_removesuffix, NULL},
    {"upper", "", str_upper, NULL},
    {"lower", "", str_lower, NULL},
    {"title", "", str_title, NULL},
    {"capitalize", "", str_capitalize, NULL},
    {"replace", "old new count?", str_replace, NULL},
    {"find", "sub start?", str_find, NULL},
    {"rfind", "sub", str_rfind, NULL},
    {"index", "sub start?", str_index, NULL},
    {"rindex", "sub", str_rindex, NULL},
    {"count", "sub", str_count, NULL},
    {"join", "iterable", str_join, NULL},
    {"format", NULL, NULL, jinja_str_format},
    {"partition", "sep", jinja_str_partition, NULL},
    {"rpartition", "sep", jinja_str_rpartition, NULL},
    {"isalpha", "", str_isalpha, NULL},
    {"isdigit", "", str_isdigit, NULL},
    {"isalnum", "", str_isalnum, NULL},
    {"isspace", "", str_isspace, NULL},
    {"isupper", "", str_isupper, NULL},
    {"islower", "", str_islower, NULL},
};

const struct jfunc *jinja_str_method(const char *name)
{
    return jinja_lookup(methods, COUNT_OF(methods), name);
}
