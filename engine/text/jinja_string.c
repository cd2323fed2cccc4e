#include "engine/text/jinja_string.h"

#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_run.h"

static const struct jinja_run run_template = {SIZE_MAX, true};
static const struct jinja_run run_value = {SIZE_MAX, false};

const struct jstr js_empty = {.data = "", .runs = &run_template, .n_runs = 1};

struct jstr js_of(const char *data, size_t len, bool from_template)
{
    return (struct jstr){
        .data = data, .len = len, .runs = from_template ? &run_template : &run_value, .n_runs = 1};
}

static const struct jstr *keep(struct jinja *j, struct jstr s)
{
    struct jstr *copy = jinja_alloc(j, 1, sizeof *copy);

    if (copy == NULL)
        return &js_empty;
    *copy = s;
    return copy;
}

const struct jstr *js_new(struct jinja *j, const char *data, size_t len, bool from_template)
{
    return keep(j, js_of(data, len, from_template));
}

const struct jstr *js_cstr(struct jinja *j, const char *s)
{
    return js_new(j, s, strlen(s), false);
}

const char *js_name(struct arena *a, const struct jstr *s)
{
    return s->len != 0 && memchr(s->data, '\0', s->len) != NULL ? NULL
                                                                : arena_strndup(a, s->data, s->len);
}

/* Index of the run that holds byte pos (the last one for a pos past the end). */
static size_t run_at(const struct jstr *s, size_t pos)
{
    size_t lo = 0, hi = s->n_runs - 1;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (s->runs[mid].end > pos)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

bool js_origin(const struct jstr *s, size_t pos, size_t *end)
{
    const struct jinja_run *r = &s->runs[run_at(s, pos)];

    *end = r->end < s->len ? r->end : s->len;
    return r->from_template;
}

const struct jstr *js_slice(struct jinja *j, const struct jstr *s, size_t from, size_t to)
{
    struct jstr out = {.data = s->data + from, .len = to - from, .markup = s->markup};
    size_t first, last;
    struct jinja_run *runs;

    if (from >= to)
        return &js_empty;
    if (from == 0 && to == s->len)
        return s;
    first = run_at(s, from);
    last = run_at(s, to - 1);
    if (first == last) {
        out.runs = s->runs[first].from_template ? &run_template : &run_value;
        out.n_runs = 1;
        return keep(j, out);
    }
    runs = jinja_alloc(j, last - first + 1, sizeof *runs);
    if (runs == NULL)
        return &js_empty;
    for (size_t i = first; i <= last; i++) {
        runs[i - first] = s->runs[i];
        runs[i - first].end -= from;
    }
    out.runs = runs;
    out.n_runs = last - first + 1;
    return keep(j, out);
}

/* A chain of `text = text ~ piece` must not copy the whole text each time: the result of a concat
 * keeps the buffer it was built in, and the next concat on it appends there. The older string still
 * sees its own length of the same bytes. The result is never markup. */
const struct jstr *js_concat(struct jinja *j, const struct jstr *a, const struct jstr *b)
{
    struct jtext *t = a->tail;
    struct jstr out;

    if (b->len == 0 && !a->markup)
        return a;
    if (a->len == 0 && !b->markup)
        return b;
    if (t == NULL || t->len != a->len) {
        t = jinja_alloc(j, 1, sizeof *t);
        if (t == NULL)
            return &js_empty;
        jt_init(t, j);
        jt_add_str(t, a);
    }
    jt_add_str(t, b);
    if (j->status != ST_OK)
        return &js_empty;
    out = (struct jstr){
        .data = t->data, .len = t->len, .runs = t->runs, .n_runs = t->n_runs, .tail = t};
    return keep(j, out);
}

bool js_equal(const struct jstr *a, const struct jstr *b)
{
    return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

bool js_is(const struct jstr *s, const char *text)
{
    return s->len == strlen(text) && memcmp(s->data, text, s->len) == 0;
}

int js_compare(const struct jstr *a, const struct jstr *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int c = memcmp(a->data, b->data, n); /* byte order is code point order in UTF-8 */

    if (c != 0)
        return c;
    return (a->len > b->len) - (a->len < b->len);
}

size_t js_count(struct jinja *j, const struct jstr *s)
{
    size_t n = 0;

    jinja_charge(j, s->len / 64);
    for (size_t i = 0; i < s->len; i++)
        n += (s->data[i] & 0xC0) != 0x80;
    return n;
}

size_t js_offset(struct jinja *j, const struct jstr *s, size_t i)
{
    size_t pos = 0;

    for (; pos < s->len; pos++) {
        if ((s->data[pos] & 0xC0) != 0x80 && i-- == 0)
            break;
    }
    jinja_charge(j, pos / 64);
    return pos;
}

size_t js_find(struct jinja *j, const struct jstr *s, const struct jstr *sub, size_t from)
{
    const char *at;

    if (from > s->len)
        return SIZE_MAX;
    if (sub->len == 0)
        return from;
    at = memmem(s->data + from, s->len - from, sub->data, sub->len);
    jinja_charge(j, (at == NULL ? s->len - from : (size_t)(at - s->data) - from) / 64);
    return at == NULL ? SIZE_MAX : (size_t)(at - s->data);
}

size_t js_rfind(struct jinja *j, const struct jstr *s, const struct jstr *sub)
{
    if (sub->len > s->len)
        return SIZE_MAX;
    for (size_t i = s->len - sub->len + 1; i-- > 0;) {
        /* Unlike memmem this may compare sub->len bytes at each place: charged for. */
        if (!jinja_charge(j, sub->len / 64 + (i % 16 == 0)))
            return SIZE_MAX;
        if (memcmp(s->data + i, sub->data, sub->len) == 0)
            return i;
    }
    return SIZE_MAX;
}

void jt_init(struct jtext *t, struct jinja *j)
{
    *t = (struct jtext){.j = j};
}

static bool grow_bytes(struct jtext *t, size_t len)
{
    size_t need, cap;
    char *data;

    if (!size_add(t->len, len, &need)) {
        jinja_stop(t->j, ST_TOO_LARGE, "builds a text that is too large");
        return false;
    }
    if (t->data != NULL && need <= t->cap)
        return true;
    cap = need < 64 ? 64 : need > SIZE_MAX / 2 ? need : need + need / 2;
    data = jinja_alloc(t->j, cap, 1);
    if (data == NULL)
        return false;
    if (t->data != NULL)
        memcpy(data, t->data, t->len);
    t->data = data;
    t->cap = cap;
    return true;
}

static bool grow_runs(struct jtext *t)
{
    size_t cap = t->cap_runs == 0 ? 4 : t->cap_runs * 2;
    struct jinja_run *runs;

    if (t->n_runs < t->cap_runs)
        return true;
    runs = jinja_alloc(t->j, cap, sizeof *runs);
    if (runs == NULL)
        return false;
    if (t->n_runs != 0)
        memcpy(runs, t->runs, t->n_runs * sizeof *runs);
    t->runs = runs;
    t->cap_runs = cap;
    return true;
}

void jt_add(struct jtext *t, const char *data, size_t len, bool from_template)
{
    if (len == 0 || !jinja_charge(t->j, len / 64) || !grow_bytes(t, len) || !grow_runs(t))
        return;
    memcpy(t->data + t->len, data, len);
    t->len += len;
    if (t->n_runs != 0 && t->runs[t->n_runs - 1].from_template == from_template)
        t->runs[t->n_runs - 1].end = t->len;
    else
        t->runs[t->n_runs++] = (struct jinja_run){t->len, from_template};
}

void jt_add_cp(struct jtext *t, uint32_t cp, bool from_template)
{
    char c[4] = {0};

    jt_add(t, c, utf8_encode(cp, c), from_template);
}

void jt_add_slice(struct jtext *t, const struct jstr *s, size_t from, size_t to)
{
    size_t run = run_at(s, from);

    while (from < to) {
        size_t end = s->runs[run].end < to ? s->runs[run].end : to;

        jt_add(t, s->data + from, end - from, s->runs[run].from_template);
        from = end;
        run++;
    }
}

void jt_add_str(struct jtext *t, const struct jstr *s)
{
    jt_add_slice(t, s, 0, s->len);
}

const struct jstr *jt_finish(struct jtext *t)
{
    struct jstr out = {.data = t->data, .len = t->len, .runs = t->runs, .n_runs = t->n_runs};

    return t->len == 0 || t->j->status != ST_OK ? &js_empty : keep(t->j, out);
}
