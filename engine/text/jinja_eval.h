/* Evaluation of the tree: variables, expressions, statements, calls, and values as text. */
#ifndef ENGINE_TEXT_JINJA_EVAL_H
#define ENGINE_TEXT_JINJA_EVAL_H

#include <jansson.h>

#include "engine/text/jinja_ast.h"
#include "engine/text/jinja_run.h"

/* Variables of one frame: the template, a pass of a loop, a call of a macro, a block. A macro sees
 * the variables of where it was defined, also later: frames that one has captured are kept, the
 * others are used again. */
struct jinja_binding {
    struct jinja_binding *next;
    const char *name;
    struct jval value;
};
struct jinja_scope {
    struct jinja_scope *parent; /* of a free one: the next free one */
    struct jinja_binding *vars;
    bool is_captured;
};

struct jmacro {
    const struct stmt *stmt;
    struct jinja_scope *scope; /* where it was defined */
};

/* jinja_exec.c */
void jinja_run_body(struct jinja *j, const struct stmt *body);
struct jval jinja_call_macro(struct jinja *j, const struct jmacro *m, const struct jargs *args);
struct jinja_scope *jinja_scope_new(struct jinja *j, struct jinja_scope *parent);
void jinja_bind(struct jinja *j, const char *name, struct jval v);

/* jinja_eval.c */
struct jval jinja_eval(struct jinja *j, const struct expr *e);
/* Applies the filters of a block to its text. */
struct jval jinja_apply_filters(struct jinja *j, const struct expr *filters,
                                const struct jstr *text);
struct jval jinja_lookup_name(struct jinja *j, const char *name);
struct jval jinja_call(struct jinja *j, struct jval callee, const struct jargs *args);

/* jinja_ops.c */
struct jval jinja_binary(struct jinja *j, enum token_type op, struct jval a, struct jval b);
struct jval jinja_negate(struct jinja *j, struct jval v);
bool jinja_compare(struct jinja *j, enum compare_op op, struct jval a, struct jval b);
bool jinja_contains(struct jinja *j, struct jval container, struct jval v);

/* jinja_attr.c */
struct jval jinja_getattr(struct jinja *j, struct jval object, const char *name);
struct jval jinja_getitem(struct jinja *j, struct jval object, struct jval key);
/* Each part may be JT_NONE. */
struct jval jinja_slice(struct jinja *j, struct jval object, const struct jval part[3]);
/* Fails with what is undefined about v. */
void jinja_raise_undefined(struct jinja *j, struct jval v);

/* jinja_print.c: str() and repr() */
const struct jstr *jinja_str(struct jinja *j, struct jval v);
void jinja_add_str(struct jtext *t, struct jval v);
void jinja_add_repr(struct jtext *t, struct jval v);
#define JINJA_FLOAT_BYTES 40
void jinja_float_repr(double f, char out[JINJA_FLOAT_BYTES]);

/* jinja_filters.c */
struct jval jinja_filter_safe(struct jinja *j, struct jval self, const struct jval *a);
struct jval jinja_filter_escape(struct jinja *j, struct jval self, const struct jval *a);

/* jinja_json.c */
struct jval jinja_from_json(struct jinja *j, const json_t *doc);
struct jval jinja_filter_tojson(struct jinja *j, struct jval self, const struct jval *a);

/* jinja_case.c: Python's case mappings; `words` are where a capital letter stands. */
enum jcase { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL };
const struct jstr *jinja_case(struct jinja *j, const struct jstr *s, enum jcase to);
/* The title filter's own notion of words: begun after white space and one of -({[< . */
const struct jstr *jinja_title_filter(struct jinja *j, const struct jstr *s);
bool jinja_has_case(const struct jstr *s, bool upper);
enum jclass { CLASS_ALPHA, CLASS_DIGIT, CLASS_ALNUM, CLASS_SPACE };
bool jinja_all_of(const struct jstr *s, enum jclass c);

#endif
