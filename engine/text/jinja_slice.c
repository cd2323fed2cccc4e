/* Slices of strings, sequences and ranges, as Python takes them. */
#include "engine/text/jinja_eval.h"

/* start, stop and step as Python's slice.indices(n) gives them. */
struct range {
    int64_t start, stop, step;
};

static int64_t clamp_index(struct jval v, int64_t n, int64_t missing, int64_t lo, int64_t hi)
{
    int64_t i;

    if (v.type == JT_NONE)
        return missing;
    i = jv_as_int(v);
    if (i < 0)
        i = i < -n ? lo : i + n;
    return i < lo ? lo : i > hi ? hi : i;
}

static bool slice_range(struct jinja *j, const struct jval part[3], int64_t n, struct range *out)
{
    for (size_t i = 0; i < 3; i++) {
        if (part[i].type != JT_NONE && !jv_is_integral(part[i])) {
            jinja_raise(j, "slice indices must be integers or None");
            return false;
        }
    }
    out->step = part[2].type == JT_NONE ? 1 : jv_as_int(part[2]);
    if (out->step == 0) {
        jinja_raise(j, "slice step cannot be zero");
        return false;
    }
    if (out->step > 0) {
        out->start = clamp_index(part[0], n, 0, 0, n);
        out->stop = clamp_index(part[1], n, n, 0, n);
    } else {
        out->start = clamp_index(part[0], n, n - 1, -1, n - 1);
        out->stop = clamp_index(part[1], n, -1, -1, n - 1);
    }
    /* A step past the length takes one item: keeps the arithmetic far from overflow. */
    out->step = out->step > n + 1 ? n + 1 : out->step < -n - 1 ? -n - 1 : out->step;
    return true;
}

static bool in_range(const struct range *r, int64_t i)
{
    return r->step > 0 ? i < r->stop : i > r->stop;
}

static struct jval slice_string(struct jinja *j, const struct jstr *s, const struct range *r)
{
    struct jseq chars;
    struct jtext t;

    if (r->step == 1) {
        size_t from = js_offset(j, s, (size_t)r->start), to = js_offset(j, s, (size_t)r->stop);

        return jv_str(js_slice(j, s, from, to));
    }
    chars = jv_iterate(j, jv_str(s));
    jt_init(&t, j);
    for (int64_t i = r->start; in_range(r, i) && jinja_charge(j, 1); i += r->step)
        jt_add_str(&t, chars.items[i].s);
    return jv_str(jt_finish(&t));
}

/* What a slice of a range prints as. */
static void set_bounds(struct jinja *j, struct jseq *out, const struct jseq *of,
                       const struct range *r)
{
    const __int128 start = of->start + (__int128)r->start * of->step,
                   stop = of->start + (__int128)r->stop * of->step,
                   step = (__int128)of->step * r->step;

    if (start != (int64_t)start || stop != (int64_t)stop || step != (int64_t)step) {
        jinja_raise(j, "an integer does not fit 64 bits");
        return;
    }
    out->start = (int64_t)start;
    out->stop = (int64_t)stop;
    out->step = (int64_t)step;
}

struct jval jinja_slice(struct jinja *j, struct jval object, const struct jval part[3])
{
    struct range r;
    struct jseq *out;
    size_t n = 0;

    if (object.type == JT_UNDEFINED) {
        jinja_raise_undefined(j, object);
        return jv_none();
    }
    if (object.type != JT_STRING && (object.type != JT_SEQ || object.seq->kind > SEQ_RANGE)) {
        jinja_raise(j, "'%s' object cannot be sliced", jv_type_name(object));
        return jv_none();
    }
    jv_length(j, object, &n);
    if (!slice_range(j, part, (int64_t)n, &r))
        return jv_none();
    if (object.type == JT_STRING)
        return slice_string(j, object.s, &r);
    out = jv_seq_new(j, object.seq->kind, 0);
    for (int64_t i = r.start; in_range(&r, i) && jinja_charge(j, 1); i += r.step)
        jv_seq_push(j, out, object.seq->items[i]);
    if (out != NULL && out->kind == SEQ_RANGE)
        set_bounds(j, out, object.seq, &r);
    return jv_seq(out);
}
