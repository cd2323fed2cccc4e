/* Parser of templates. Failures are sticky: after one, every token is TOK_EOF, so that the parse
 * unwinds by itself. Names of filters, tests, methods and tags are looked up here: what the
 * interpreter doesn't know is refused at load, by name (parser_unknown: with one exception). */
#ifndef ENGINE_TEXT_JINJA_PARSE_H
#define ENGINE_TEXT_JINJA_PARSE_H

#include "base/arena.h"
#include "engine/text/jinja_ast.h"

/* Parses normalized source into *out. The tree lives in `arena` and borrows `src`. */
MUST_CHECK enum status jinja_parse(struct arena *arena, const char *src, size_t len,
                                   struct stmt **out, struct reason *why);

/* Shared by the parser's files. */
struct parser {
    struct arena *arena;
    struct lexer lexer;
    struct token cur, next;
    enum status status;
    struct reason *why;
    int depth, loop_depth, macro_depth;
    /* What a node's maker gets after a failure; never evaluated. */
    bool is_conditional;                     /* in an if, with no other block in between */
    const char *unknown_what, *unknown_name; /* to be refused for; unknown_name NULL: nothing */
    struct expr spare_expr;
    struct stmt spare_stmt;
};

/* An unknown filter or test ("filter", "urlize"). Under a condition, as Jinja does it, that is an
 * error only when it is reached; elsewhere it refuses the template at the end of the statement. */
void parser_unknown(struct parser *p, const char *what, const char *name);
void parser_fail(struct parser *p, enum status st, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "... the tag 'include'": a construct that we refuse. */
void parser_refuse(struct parser *p, const char *what, const char *name);
void *parser_alloc(struct parser *p, size_t count, size_t bytes_each);
void parser_advance(struct parser *p);
bool parser_is_name(const struct token *t, const char *name);
bool parser_skip_name(struct parser *p, const char *name);
bool parser_skip(struct parser *p, enum token_type type);
/* Fails with "expected WHAT". */
void parser_expect(struct parser *p, enum token_type type, const char *what);
/* The current token's text, which must be a name; advances. */
const char *parser_name(struct parser *p);
/* Depth of nesting: false (and failed) past the bound; pair each true with a leave. */
bool parser_enter(struct parser *p);
void parser_leave(struct parser *p);

/* Growing array of expressions. */
struct expr_list {
    struct expr **items;
    size_t n, cap;
};
void parser_push(struct parser *p, struct expr_list *list, struct expr *e);

/* A node at the current line with its depth; never NULL, but never evaluated after a failure. */
struct expr *parser_node(struct parser *p, enum expr_kind kind, struct expr *a, struct expr *b);
struct expr *parser_constant(struct parser *p, struct jval v);
void parser_set_args(struct parser *p, struct expr *e, const struct expr_list *list);
/* Counts a child (NULL is fine) into the node's depth, which is bounded. */
void parser_deepen(struct parser *p, struct expr *e, const struct expr *child);

/* Parts of an expression, each beginning at the current token. */
struct expr *parse_number(struct parser *p);
struct expr *parse_string(struct parser *p); /* adjacent ones are one */
struct expr *parse_primary(struct parser *p);
/* Attributes, subscripts and calls after e; the test after "is". */
struct expr *parse_postfix(struct parser *p, struct expr *e);
struct expr *parse_call(struct parser *p, struct expr *callee);
struct expr *parse_test(struct parser *p, struct expr *input);
/* An expression; `with_cond`: "a if b else c" is allowed at its top. */
struct expr *parse_expression(struct parser *p, bool with_cond);
/* One expression or several with commas: a tuple. `until` is a name that ends it, or NULL. */
struct expr *parse_tuple(struct parser *p, bool with_cond, const char *until);
/* Target of an assignment: name, tuple of targets, or (with_namespace) namespace.attribute. */
struct expr *parse_target(struct parser *p, bool with_namespace, const char *until);
/* "name(args) | name ..." of a filter block or, after a pipe, of a set block. */
struct expr *parse_filters(struct parser *p, struct expr *input);

#endif
