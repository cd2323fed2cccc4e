/* Cutting strings: split, rsplit, partition, rpartition, splitlines. */
#include "engine/text/jinja_str.h"

#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_lex.h"

static void push_slice(struct jinja *j, struct jseq *out, const struct jstr *s, size_t from,
                       size_t to)
{
    jv_seq_push(j, out, jv_str(js_slice(j, s, from, to)));
}

static size_t skip_space(const struct jstr *s, size_t pos)
{
    size_t n;

    while (pos < s->len && (n = lex_space(s->data + pos, s->len - pos)) != 0)
        pos += n;
    return pos;
}

static size_t skip_word(const struct jstr *s, size_t pos)
{
    while (pos < s->len && lex_space(s->data + pos, s->len - pos) == 0)
        pos += (size_t)utf8_decode(s->data + pos, s->len - pos, NULL);
    return pos;
}

static void split_words(struct jinja *j, struct jseq *out, const struct jstr *s, int64_t max)
{
    size_t pos = skip_space(s, 0);

    for (; pos < s->len && j->status == ST_OK; max--) {
        size_t end = max == 0 ? s->len : skip_word(s, pos); /* the rest stays as it is */

        push_slice(j, out, s, pos, end);
        pos = skip_space(s, end);
    }
}

static void split_by(struct jinja *j, struct jseq *out, const struct jstr *s,
                     const struct jstr *sep, int64_t max)
{
    size_t from = 0, at;

    while (max-- != 0 && j->status == ST_OK && (at = js_find(j, s, sep, from)) != SIZE_MAX) {
        push_slice(j, out, s, from, at);
        from = at + sep->len;
    }
    push_slice(j, out, s, from, s->len);
}

static void reverse(struct jseq *seq)
{
    for (size_t i = 0; i < seq->n / 2; i++) {
        struct jval v = seq->items[i];

        seq->items[i] = seq->items[seq->n - 1 - i];
        seq->items[seq->n - 1 - i] = v;
    }
}

static void rsplit_by(struct jinja *j, struct jseq *out, const struct jstr *s,
                      const struct jstr *sep, int64_t max)
{
    size_t to = s->len, at;

    while (max-- != 0 && j->status == ST_OK &&
           (at = js_rfind(j, js_slice(j, s, 0, to), sep)) != SIZE_MAX) {
        push_slice(j, out, s, at + sep->len, to);
        to = at;
    }
    push_slice(j, out, s, 0, to);
    reverse(out);
}

/* The start of the word that ends at `to`. */
static size_t word_start(const struct jstr *s, size_t to)
{
    while (to > 0) {
        size_t p = to - 1;

        while (p > 0 && (s->data[p] & 0xC0) == 0x80)
            p--;
        if (lex_space(s->data + p, to - p) != 0)
            break;
        to = p;
    }
    return to;
}

static void rsplit_words(struct jinja *j, struct jseq *out, const struct jstr *s, int64_t max)
{
    s = jinja_strip(j, s, NULL, STRIP_RIGHT);
    for (; s->len != 0 && j->status == ST_OK; max--) {
        size_t from = word_start(s, s->len);

        if (max == 0)
            from = 0;
        push_slice(j, out, s, from, s->len);
        s = jinja_strip(j, js_slice(j, s, 0, from), NULL, STRIP_RIGHT);
    }
    reverse(out);
}

static struct jval split(struct jinja *j, struct jval self, const struct jval *a, bool right)
{
    bool words = a[0].type == JT_MISSING || a[0].type == JT_NONE;
    const struct jstr *sep = words ? &js_empty : jinja_string_arg(j, a[0]);
    int64_t max = jinja_int_arg(j, a[1], -1);
    struct jseq *out = jv_seq_new(j, SEQ_LIST, 0);

    if (!words && sep->len == 0)
        jinja_raise(j, "empty separator");
    if (out == NULL || j->status != ST_OK)
        return jv_none();
    max = max < 0 ? -1 : max;
    if (words && right)
        rsplit_words(j, out, self.s, max);
    else if (words)
        split_words(j, out, self.s, max);
    else if (right)
        rsplit_by(j, out, self.s, sep, max);
    else
        split_by(j, out, self.s, sep, max);
    return jv_seq(out);
}

struct jval jinja_str_split(struct jinja *j, struct jval self, const struct jval *a)
{
    return split(j, self, a, false);
}

struct jval jinja_str_rsplit(struct jinja *j, struct jval self, const struct jval *a)
{
    return split(j, self, a, true);
}

static struct jval partition(struct jinja *j, struct jval self, const struct jval *a, bool right)
{
    const struct jstr *s = self.s, *sep = jinja_string_arg(j, a[0]);
    struct jseq *out = jv_seq_new(j, SEQ_TUPLE, 3);
    size_t at;

    if (sep->len == 0)
        jinja_raise(j, "empty separator");
    if (out == NULL || j->status != ST_OK)
        return jv_none();
    at = right ? js_rfind(j, s, sep) : js_find(j, s, sep, 0);
    for (size_t i = 0; i < 3; i++)
        out->items[i] = jv_str(&js_empty);
    if (at == SIZE_MAX) {
        out->items[right ? 2 : 0] = self;
        return jv_seq(out);
    }
    out->items[0] = jv_str(js_slice(j, s, 0, at));
    out->items[1] = jv_str(js_slice(j, s, at, at + sep->len));
    out->items[2] = jv_str(js_slice(j, s, at + sep->len, s->len));
    return jv_seq(out);
}

struct jval jinja_str_partition(struct jinja *j, struct jval self, const struct jval *a)
{
    return partition(j, self, a, false);
}

struct jval jinja_str_rpartition(struct jinja *j, struct jval self, const struct jval *a)
{
    return partition(j, self, a, true);
}

/* Bytes of the line end at s (Python's universal ones); 0: none is there. */
static size_t line_end(const char *s, size_t len)
{
    uint32_t cp = 0;
    int n = utf8_decode(s, len, &cp);

    if (cp == '\r' && len > 1 && s[1] == '\n')
        return 2;
    return (cp >= '\n' && cp <= '\r') || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
                   cp == 0x2029
               ? (size_t)n
               : 0;
}

struct jseq *jinja_splitlines(struct jinja *j, const struct jstr *s, bool keep_ends)
{
    struct jseq *out = jv_seq_new(j, SEQ_LIST, 0);
    size_t from = 0;

    for (size_t pos = 0; out != NULL && pos < s->len && jinja_charge(j, pos % 64 == 0);) {
        size_t end = line_end(s->data + pos, s->len - pos);

        if (end == 0) {
            pos += (size_t)utf8_decode(s->data + pos, s->len - pos, NULL);
            continue;
        }
        push_slice(j, out, s, from, keep_ends ? pos + end : pos);
        pos += end;
        from = pos;
    }
    if (from < s->len)
        push_slice(j, out, s, from, s->len);
    return out;
}
