/* Values of the template interpreter, with Python's meaning of truth, equality, order and hash
 * keys. Small structs passed by value; what they point to lives in the render's arena and never
 * changes, except the variables of a namespace and the position of a generator. */
#ifndef ENGINE_TEXT_JINJA_VALUE_H
#define ENGINE_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/text/jinja_string.h"

enum jtype {
    JT_MISSING, /* an argument that was not given; no value of the language */
    JT_UNDEFINED,
    JT_NONE,
    JT_BOOL,
    JT_INT,
    JT_FLOAT,
    JT_STRING,
    JT_SEQ, /* everything with items in order: enum jseq_kind */
    JT_DICT,
    JT_NAMESPACE,
    JT_LOOP,
    JT_MACRO,
    JT_BUILTIN,
    JT_METHOD,
};

enum jseq_kind {
    SEQ_LIST,
    SEQ_TUPLE,
    SEQ_RANGE,
    SEQ_ITEMS, /* dict views: have a length, no index */
    SEQ_KEYS,
    SEQ_VALUES,
    SEQ_GENERATOR, /* what map, select, ... return: always true, no length, read once */
};

struct jval {
    enum jtype type;
    union {
        bool b;
        int64_t i;
        double f;
        const struct jstr *s;
        struct jseq *seq;
        struct jdict *dict; /* JT_DICT and JT_NAMESPACE */
        const struct jundef *undef;
        struct jloop *loop;
        const struct jmacro *macro;
        const struct jfunc *builtin;
        const struct jmethod *method;
    };
};

struct jseq {
    enum jseq_kind kind;
    struct jval *items;
    size_t n;
    size_t next;               /* generators: first item not yet read */
    int64_t start, stop, step; /* ranges, for their text */
};

/* Insertion order, searched from the front: dicts of chat requests are small, and the search is
 * charged for. */
struct jdict {
    struct jval *keys, *values;
    size_t n, cap;
};

/* What an undefined value says when it is used. */
struct jundef {
    const char *name;   /* the variable or attribute; NULL: not a name (an index, or a value) */
    const char *object; /* type of the object that lacks it; NULL: a variable */
    const char *hint;   /* a message of its own; NULL: none */
};

/* A function of the table kind (filter, test, method, global). `params` names what follows the
 * receiver, space-separated, optional ones with '?'; missing ones arrive as JT_MISSING. Functions
 * with a NULL `params` take their arguments raw. Both NULL: Python has it and we don't. */
struct jargs {
    const struct jval *pos;
    size_t n_pos;
    const char *const *names; /* of the keyword arguments */
    const struct jval *named;
    size_t n_named;
};
#define JINJA_PARAMS_MAX 6
struct jfunc {
    const char *name;
    const char *params;
    struct jval (*call)(struct jinja *j, struct jval self, const struct jval *a);
    struct jval (*call_raw)(struct jinja *j, struct jval self, const struct jargs *args);
};

struct jmethod {
    struct jval self;
    const struct jfunc *func;
};

struct jloop {
    const struct jval *items;
    size_t n, i;
    struct jval changed; /* last arguments of loop.changed */
};

static inline struct jval jv_none(void)
{
    return (struct jval){.type = JT_NONE};
}
static inline struct jval jv_missing(void)
{
    return (struct jval){.type = JT_MISSING};
}
static inline struct jval jv_bool(bool b)
{
    return (struct jval){.type = JT_BOOL, .b = b};
}
static inline struct jval jv_int(int64_t i)
{
    return (struct jval){.type = JT_INT, .i = i};
}
static inline struct jval jv_float(double f)
{
    return (struct jval){.type = JT_FLOAT, .f = f};
}
static inline struct jval jv_str(const struct jstr *s)
{
    return (struct jval){.type = JT_STRING, .s = s};
}
/* An undefined variable; name and hint are borrowed for the render's life. */
struct jval jv_undefined(struct jinja *j, const char *name);
struct jval jv_undefined_attr(struct jinja *j, struct jval object, const char *name);
struct jval jv_undefined_hint(struct jinja *j, const char *hint);

/* A sequence of n items to be filled in (zeroed: JT_MISSING). NULL on failure. */
struct jseq *jv_seq_new(struct jinja *j, enum jseq_kind kind, size_t n);
struct jval jv_seq(struct jseq *seq); /* NULL gives undefined */
/* Appends to a sequence that was begun with n 0. */
void jv_seq_push(struct jinja *j, struct jseq *seq, struct jval v);
struct jval jv_pair(struct jinja *j, struct jval a, struct jval b);

struct jdict *jv_dict_new(struct jinja *j);
struct jval jv_dict(struct jdict *d);
/* Appends without looking for the key. */
void jv_dict_push(struct jinja *j, struct jdict *d, struct jval key, struct jval value);
/* Fails on a key that can't be hashed. */
void jv_dict_put(struct jinja *j, struct jdict *d, struct jval key, struct jval value);
const struct jval *jv_dict_find(struct jinja *j, const struct jdict *d, struct jval key);
const struct jval *jv_dict_find_name(struct jinja *j, const struct jdict *d, const char *name);

bool jv_is_true(struct jval v);
bool jv_equal(struct jinja *j, struct jval a, struct jval b);
/* `op` is for the message of a TypeError. */
int jv_compare(struct jinja *j, struct jval a, struct jval b, const char *op);
bool jv_is_number(struct jval v);   /* bool, int or float */
bool jv_is_integral(struct jval v); /* bool or int */
int64_t jv_as_int(struct jval v);
double jv_as_float(struct jval v);
/* Python's name of the type: "str", "NoneType", ... */
const char *jv_type_name(struct jval v);
bool jv_is_seq(struct jval v, enum jseq_kind kind);

/* The items of anything that can be iterated; fails on what can't. Reads a generator to its end. */
struct jseq jv_iterate(struct jinja *j, struct jval v);
/* len(); false when it has none. */
bool jv_length(struct jinja *j, struct jval v, size_t *out);

#endif
