/* Tuples without parentheses: of values, and of names that are assigned to. */
#include "engine/text/jinja_parse.h"

#include <string.h>

#include "engine/text/jinja_run.h"

static bool ends_tuple(const struct parser *p, const char *until)
{
    return p->cur.type == TOK_PRINT_END || p->cur.type == TOK_BLOCK_END ||
           p->cur.type == TOK_RPAREN || p->cur.type == TOK_EOF ||
           (until != NULL && parser_is_name(&p->cur, until));
}

struct expr *parse_tuple(struct parser *p, bool with_cond, const char *until)
{
    struct expr *first = parse_expression(p, with_cond), *e;
    struct expr_list items = {0};

    if (p->cur.type != TOK_COMMA)
        return first;
    e = parser_node(p, EXPR_TUPLE, NULL, NULL);
    parser_push(p, &items, first);
    while (parser_skip(p, TOK_COMMA) && !ends_tuple(p, until))
        parser_push(p, &items, parse_expression(p, with_cond));
    parser_set_args(p, e, &items);
    return e;
}

static struct expr *target_name(struct parser *p, bool with_namespace)
{
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    struct expr *e = parser_node(p, EXPR_NAME, NULL, NULL), *attr;

    e->name = parser_name(p);
    for (size_t i = 0; i < COUNT_OF(constants); i++) {
        if (strcmp(e->name, constants[i]) == 0)
            parser_fail(p, ST_INVALID, "assigns to '%s'", e->name);
    }
    if (!with_namespace || !parser_skip(p, TOK_DOT))
        return e;
    attr = parser_node(p, EXPR_ATTR, e, NULL);
    attr->name = parser_name(p);
    return attr;
}

static struct expr *parse_target_one(struct parser *p, bool with_namespace)
{
    struct expr *e;

    if (p->cur.type != TOK_LPAREN)
        return target_name(p, with_namespace);
    if (!parser_enter(p))
        return parser_node(p, EXPR_CONST, NULL, NULL);
    parser_advance(p);
    e = parse_target(p, false, NULL);
    parser_expect(p, TOK_RPAREN, ")");
    parser_leave(p);
    return e;
}

struct expr *parse_target(struct parser *p, bool with_namespace, const char *until)
{
    struct expr *first = parse_target_one(p, with_namespace), *e;
    struct expr_list items = {0};

    if (p->cur.type != TOK_COMMA)
        return first;
    e = parser_node(p, EXPR_TUPLE, NULL, NULL);
    parser_push(p, &items, first);
    while (parser_skip(p, TOK_COMMA) && !ends_tuple(p, until))
        parser_push(p, &items, parse_target_one(p, with_namespace));
    parser_set_args(p, e, &items);
    return e;
}
