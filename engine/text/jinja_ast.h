/* The syntax tree of a template. Nodes live in the template's arena and are immutable after the
 * parse. */
#ifndef ENGINE_TEXT_JINJA_AST_H
#define ENGINE_TEXT_JINJA_AST_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/text/jinja_lex.h"
#include "engine/text/jinja_value.h"

enum expr_kind {
    EXPR_CONST,   /* value */
    EXPR_NAME,    /* name */
    EXPR_LIST,    /* args */
    EXPR_TUPLE,   /* args */
    EXPR_DICT,    /* args: key, value, key, value, ... */
    EXPR_NEGATE,  /* a */
    EXPR_PLUS,    /* a */
    EXPR_NOT,     /* a */
    EXPR_AND,     /* a, b */
    EXPR_OR,      /* a, b */
    EXPR_BINARY,  /* a op b, arithmetic */
    EXPR_CONCAT,  /* args, joined by ~ */
    EXPR_COMPARE, /* a, then ops[i] args[i] */
    EXPR_COND,    /* a if b else c; c may be NULL */
    EXPR_ATTR,    /* a.name; as a target: an attribute of a namespace */
    EXPR_ITEM,    /* a[b] */
    EXPR_SLICE,   /* a[args[0]:args[1]:args[2]], each may be NULL */
    EXPR_CALL,    /* a(args, names[] = named[]) */
    EXPR_FILTER,  /* a | func(args); a is NULL: the text of a block */
    EXPR_TEST,    /* a is func(args) */
};

enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

struct expr {
    enum expr_kind kind;
    enum token_type op; /* EXPR_BINARY */
    unsigned line;
    unsigned depth; /* of the tree below: bounds the evaluator's recursion */
    struct expr *a, *b, *c;
    struct expr **args;
    size_t n_args;
    const char **names; /* keyword arguments */
    struct expr **named;
    size_t n_named;
    enum compare_op *ops;
    const char *name;
    const struct jfunc *func; /* EXPR_FILTER, EXPR_TEST; NULL: unknown, fails when it is reached */
    struct jval value;
};

enum stmt_kind {
    STMT_TEXT,         /* text */
    STMT_PRINT,        /* expr */
    STMT_IF,           /* expr, body, or_else (an elif is an if in or_else) */
    STMT_FOR,          /* target in expr if cond: body, or_else */
    STMT_SET,          /* target = expr */
    STMT_SET_BLOCK,    /* target = body, through the filters in expr (NULL: none) */
    STMT_FILTER_BLOCK, /* body through expr */
    STMT_MACRO,        /* macro */
    STMT_WITH,         /* targets[i] = values[i]; body */
    STMT_SCOPE,        /* body, transparent: generation */
    STMT_BREAK,
    STMT_CONTINUE,
};

struct jmacro_def {
    const char *name;
    const char **params;
    struct expr **defaults; /* NULL where there is none */
    size_t n_params;
};

struct stmt {
    enum stmt_kind kind;
    unsigned line;
    struct stmt *next; /* in its body */
    struct jstr text;
    struct expr *target, *expr, *cond;
    struct expr **targets, **values;
    size_t n_targets;
    struct stmt *body, *or_else;
    struct jmacro_def macro;
    bool is_elif; /* an if that is the or_else of the one before */
};

#endif
