/* Expressions, in the order and with the quirks of Jinja 3's grammar. */
#include "engine/text/jinja_parse.h"

#include <string.h>

#include "engine/text/jinja_run.h"

static unsigned depth_of(const struct expr *e)
{
    return e == NULL ? 0 : e->depth;
}

void parser_deepen(struct parser *p, struct expr *e, const struct expr *child)
{
    if (depth_of(child) >= e->depth)
        e->depth = depth_of(child) + 1;
    if (e->depth > JINJA_TREE_DEPTH_MAX)
        parser_fail(p, ST_TOO_LARGE, "nests too deeply");
}

struct expr *parser_node(struct parser *p, enum expr_kind kind, struct expr *a, struct expr *b)
{
    struct expr *e = parser_alloc(p, 1, sizeof *e);

    if (e == NULL)
        return &p->spare_expr;
    e->kind = kind;
    e->line = p->cur.line;
    e->a = a;
    e->b = b;
    parser_deepen(p, e, a);
    parser_deepen(p, e, b);
    return e;
}

void parser_set_args(struct parser *p, struct expr *e, const struct expr_list *list)
{
    e->args = list->items;
    e->n_args = list->n;
    for (size_t i = 0; i < list->n; i++)
        parser_deepen(p, e, list->items[i]);
}

struct expr *parser_constant(struct parser *p, struct jval v)
{
    struct expr *e = parser_node(p, EXPR_CONST, NULL, NULL);

    e->value = v;
    return e;
}

static struct expr *binary(struct parser *p, enum token_type op, struct expr *a, struct expr *b)
{
    struct expr *e = parser_node(p, EXPR_BINARY, a, b);

    e->op = op;
    return e;
}

static struct expr *parse_list(struct parser *p)
{
    struct expr_list items = {0};
    struct expr *e = parser_node(p, EXPR_LIST, NULL, NULL);

    parser_advance(p);
    while (p->status == ST_OK && p->cur.type != TOK_RBRACKET) {
        parser_push(p, &items, parse_expression(p, true));
        if (!parser_skip(p, TOK_COMMA))
            break;
    }
    parser_expect(p, TOK_RBRACKET, "]");
    parser_set_args(p, e, &items);
    return e;
}

static struct expr *parse_dict(struct parser *p)
{
    struct expr_list items = {0};
    struct expr *e = parser_node(p, EXPR_DICT, NULL, NULL);

    parser_advance(p);
    while (p->status == ST_OK && p->cur.type != TOK_RBRACE) {
        parser_push(p, &items, parse_expression(p, true));
        parser_expect(p, TOK_COLON, ":");
        parser_push(p, &items, parse_expression(p, true));
        if (!parser_skip(p, TOK_COMMA))
            break;
    }
    parser_expect(p, TOK_RBRACE, "}");
    parser_set_args(p, e, &items);
    return e;
}

static struct expr *parse_parens(struct parser *p)
{
    struct expr *e;

    parser_advance(p);
    if (p->cur.type == TOK_RPAREN)
        e = parser_node(p, EXPR_TUPLE, NULL, NULL);
    else
        e = parse_tuple(p, true, NULL);
    parser_expect(p, TOK_RPAREN, ")");
    return e;
}

static struct expr *parse_named(struct parser *p)
{
    static const char *const special[] = {"caller", "varargs", "kwargs"};
    struct expr *e = parser_node(p, EXPR_NAME, NULL, NULL);
    const char *name = parser_name(p);

    e->name = name;
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0)
        return parser_constant(p, jv_bool(true));
    if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0)
        return parser_constant(p, jv_bool(false));
    if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0)
        return parser_constant(p, jv_none());
    for (size_t i = 0; p->macro_depth != 0 && i < COUNT_OF(special); i++) {
        if (strcmp(name, special[i]) == 0)
            parser_refuse(p, "macro variable", name);
    }
    return e;
}

struct expr *parse_primary(struct parser *p)
{
    switch (p->cur.type) {
    case TOK_NAME:
        return parse_named(p);
    case TOK_STRING:
        return parse_string(p);
    case TOK_INT:
    case TOK_FLOAT:
        return parse_number(p);
    case TOK_LPAREN:
        return parse_parens(p);
    case TOK_LBRACKET:
        return parse_list(p);
    case TOK_LBRACE:
        return parse_dict(p);
    default:
        parser_fail(p, ST_INVALID, "lacks an expression");
        return parser_node(p, EXPR_CONST, NULL, NULL);
    }
}

static struct expr *parse_unary(struct parser *p, bool with_filter)
{
    struct expr *e;

    if (p->cur.type == TOK_SUB || p->cur.type == TOK_ADD) {
        enum expr_kind kind = p->cur.type == TOK_SUB ? EXPR_NEGATE : EXPR_PLUS;

        if (!parser_enter(p))
            return parser_node(p, EXPR_CONST, NULL, NULL);
        parser_advance(p);
        e = parser_node(p, kind, parse_unary(p, false), NULL);
        parser_leave(p);
    } else {
        e = parse_primary(p);
    }
    e = parse_postfix(p, e);
    while (with_filter) {
        if (parser_skip(p, TOK_PIPE))
            e = parse_filters(p, e);
        else if (parser_is_name(&p->cur, "is"))
            e = parse_test(p, e);
        else if (p->cur.type == TOK_LPAREN)
            e = parse_call(p, e);
        else
            break;
    }
    return e;
}

/* Left-associative, unlike Python's. */
static struct expr *parse_pow(struct parser *p)
{
    struct expr *e = parse_unary(p, true);

    while (parser_skip(p, TOK_POW))
        e = binary(p, TOK_POW, e, parse_unary(p, true));
    return e;
}

static struct expr *parse_product(struct parser *p)
{
    struct expr *e = parse_pow(p);

    while (p->cur.type == TOK_MUL || p->cur.type == TOK_DIV || p->cur.type == TOK_FLOORDIV ||
           p->cur.type == TOK_MOD) {
        enum token_type op = p->cur.type;

        parser_advance(p);
        if (op == TOK_MOD && e->kind == EXPR_CONST && e->value.type == JT_STRING)
            parser_refuse(p, "operator", "% on a string");
        e = binary(p, op, e, parse_pow(p));
    }
    return e;
}

static struct expr *parse_concat(struct parser *p)
{
    struct expr *first = parse_product(p), *e;
    struct expr_list parts = {0};

    if (p->cur.type != TOK_TILDE)
        return first;
    e = parser_node(p, EXPR_CONCAT, NULL, NULL);
    parser_push(p, &parts, first);
    while (parser_skip(p, TOK_TILDE))
        parser_push(p, &parts, parse_product(p));
    parser_set_args(p, e, &parts);
    return e;
}

static struct expr *parse_sum(struct parser *p)
{
    struct expr *e = parse_concat(p);

    while (p->cur.type == TOK_ADD || p->cur.type == TOK_SUB) {
        enum token_type op = p->cur.type;

        parser_advance(p);
        e = binary(p, op, e, parse_concat(p));
    }
    return e;
}

/* Takes a comparison operator when the current token begins one. */
static bool take_compare_op(struct parser *p, enum compare_op *op)
{
    static const enum compare_op symbols[] = {
        [TOK_EQ] = CMP_EQ, [TOK_NE] = CMP_NE, [TOK_LT] = CMP_LT,
        [TOK_LE] = CMP_LE, [TOK_GT] = CMP_GT, [TOK_GE] = CMP_GE};

    if (p->cur.type >= TOK_EQ && p->cur.type <= TOK_GE) {
        *op = symbols[p->cur.type];
    } else if (parser_is_name(&p->cur, "in")) {
        *op = CMP_IN;
    } else if (parser_is_name(&p->cur, "not") && parser_is_name(&p->next, "in")) {
        *op = CMP_NOT_IN;
        parser_advance(p);
    } else {
        return false;
    }
    parser_advance(p);
    return true;
}

static struct expr *parse_compare(struct parser *p)
{
    struct expr *first = parse_sum(p), *e = NULL;
    struct expr_list operands = {0};
    enum compare_op op;

    while (take_compare_op(p, &op)) {
        enum compare_op *ops = parser_alloc(p, operands.n + 1, sizeof *ops);

        if (e == NULL)
            e = parser_node(p, EXPR_COMPARE, first, NULL);
        if (ops == NULL)
            break;
        if (operands.n != 0)
            memcpy(ops, e->ops, operands.n * sizeof *ops);
        ops[operands.n] = op;
        e->ops = ops;
        parser_push(p, &operands, parse_sum(p));
    }
    if (e == NULL)
        return first;
    parser_set_args(p, e, &operands);
    return e;
}

static struct expr *parse_not(struct parser *p)
{
    struct expr *e;

    if (!parser_is_name(&p->cur, "not"))
        return parse_compare(p);
    if (!parser_enter(p))
        return parser_node(p, EXPR_CONST, NULL, NULL);
    parser_advance(p);
    e = parser_node(p, EXPR_NOT, parse_not(p), NULL);
    parser_leave(p);
    return e;
}

static struct expr *parse_and(struct parser *p)
{
    struct expr *e = parse_not(p);

    while (parser_skip_name(p, "and"))
        e = parser_node(p, EXPR_AND, e, parse_not(p));
    return e;
}

static struct expr *parse_or(struct parser *p)
{
    struct expr *e = parse_and(p);

    while (parser_skip_name(p, "or"))
        e = parser_node(p, EXPR_OR, e, parse_and(p));
    return e;
}

struct expr *parse_expression(struct parser *p, bool with_cond)
{
    const char *unknown = p->unknown_name;
    bool outer = p->is_conditional;
    struct expr *e;

    if (!parser_enter(p))
        return parser_node(p, EXPR_CONST, NULL, NULL);
    e = parse_or(p);
    while (with_cond && parser_skip_name(p, "if")) {
        struct expr *cond;

        p->is_conditional = true;
        p->unknown_name = unknown; /* what e has was under this condition */
        cond = parser_node(p, EXPR_COND, e, parse_or(p));
        if (parser_skip_name(p, "else"))
            cond->c = parse_expression(p, true);
        p->is_conditional = outer;
        parser_deepen(p, cond, cond->c);
        e = cond;
    }
    parser_leave(p);
    return e;
}
