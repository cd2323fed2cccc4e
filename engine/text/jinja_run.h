/* The state of one render, shared by the files of the interpreter. One thread. A failure is sticky:
 * the first one is kept, later steps are refused, and values computed after it are undefined, so
 * that only loops and the end need to look at `status`. */
#ifndef ENGINE_TEXT_JINJA_RUN_H
#define ENGINE_TEXT_JINJA_RUN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/size.h"
#include "base/status.h"
#include "engine/text/jinja_string.h"
#include "engine/text/jinja_value.h"

/* Far above what real templates use on the largest context, low enough for a few hundred ms. */
#define JINJA_STEPS_MAX  ((size_t)2000000)
#define JINJA_MEMORY_MAX ((size_t)64 * 1024 * 1024)
#define JINJA_OUTPUT_MAX ((size_t)16 * 1024 * 1024)
/* Nesting of a template's text, and length of its chains of operators (left-leaning trees). */
#define JINJA_PARSE_DEPTH_MAX 100
#define JINJA_TREE_DEPTH_MAX  500
/* Arguments of a call and parameters of a macro: they are matched one by one. */
#define JINJA_ARGUMENTS_MAX 255
/* Nesting of evaluation: a few hundred bytes of C stack each, and threads have 8 MiB. */
#define JINJA_EVAL_DEPTH_MAX  3000
#define JINJA_MACRO_DEPTH_MAX 200
#define JINJA_VALUE_DEPTH_MAX 200
/* As Jinja's sandbox. */
#define JINJA_RANGE_MAX 100000

struct jinja_scope;
struct jinja_binding;

struct jinja {
    struct arena arena;
    enum status status;
    struct reason *why;
    unsigned line; /* of the node being evaluated */
    size_t steps_left;
    int depth, macro_depth, value_depth;
    size_t output_max;
    struct jtext *out;
    struct jinja_scope *scope, *free_scopes;
    struct jinja_binding *free_bindings;
    long long now_s;
};

/* The template did something that Jinja raises an error for. */
void jinja_raise(struct jinja *j, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A bound was reached: "the chat template ... (line N)". */
void jinja_stop(struct jinja *j, enum status st, const char *what);
/* Takes steps; false after any failure. */
bool jinja_charge(struct jinja *j, size_t steps);
/* Zeroed; NULL (and failed) at the memory bound. */
void *jinja_alloc(struct jinja *j, size_t count, size_t bytes_each);
/* Guards recursion over values (text, equality, JSON); pair each true with a leave. */
bool jinja_enter_value(struct jinja *j);
void jinja_leave_value(struct jinja *j);

#endif
