/* What follows an operand: attributes, subscripts, calls, filters and tests. */
#include "engine/text/jinja_parse.h"

#include <stdio.h>
#include <string.h>

#include "engine/text/jinja_run.h"
#include "engine/text/jinja_tables.h"

static void parse_argument(struct parser *p, struct expr *call, struct expr_list *args,
                           struct expr_list *named)
{
    if (p->cur.type == TOK_MUL || p->cur.type == TOK_POW) {
        parser_refuse(p, "call with", p->cur.type == TOK_MUL ? "*arguments" : "**arguments");
    } else if (p->cur.type == TOK_NAME && p->next.type == TOK_ASSIGN) {
        const char **names = parser_alloc(p, named->n + 1, sizeof *names);

        if (names == NULL)
            return;
        if (named->n != 0)
            memcpy(names, call->names, named->n * sizeof *names);
        names[named->n] = parser_name(p);
        call->names = names;
        parser_advance(p);
        parser_push(p, named, parse_expression(p, true));
    } else if (named->n != 0) {
        parser_fail(p, ST_INVALID, "has a positional argument after a keyword argument");
    } else {
        parser_push(p, args, parse_expression(p, true));
    }
}

/* "(...)" into the call's arguments. */
static void parse_args(struct parser *p, struct expr *call)
{
    struct expr_list args = {0}, named = {0};

    parser_advance(p);
    while (p->status == ST_OK && p->cur.type != TOK_RPAREN) {
        if (args.n + named.n == JINJA_ARGUMENTS_MAX)
            parser_fail(p, ST_TOO_LARGE, "has a call with too many arguments");
        parse_argument(p, call, &args, &named);
        if (!parser_skip(p, TOK_COMMA))
            break;
    }
    parser_expect(p, TOK_RPAREN, ")");
    parser_set_args(p, call, &args);
    call->named = named.items;
    call->n_named = named.n;
    for (size_t i = 0; i < named.n; i++)
        parser_deepen(p, call, named.items[i]);
}

struct expr *parse_call(struct parser *p, struct expr *callee)
{
    static const char *const refused[] = {"lipsum", "cycler", "joiner"};
    struct expr *e = parser_node(p, EXPR_CALL, callee, NULL);

    if (callee->kind == EXPR_ATTR && !jinja_has_method(callee->name))
        parser_refuse(p, "method", callee->name);
    for (size_t i = 0; callee->kind == EXPR_NAME && i < COUNT_OF(refused); i++) {
        if (strcmp(callee->name, refused[i]) == 0)
            parser_refuse(p, "function", callee->name);
    }
    parse_args(p, e);
    return e;
}

/* What stands in [ ] after the first ':' or expression was seen. */
static struct expr *parse_slice(struct parser *p, struct expr *object, struct expr *start)
{
    struct expr *e = parser_node(p, EXPR_SLICE, object, NULL);
    struct expr_list parts = {0};

    parser_push(p, &parts, start);
    for (int i = 0; i < 2; i++) {
        bool has_part = parser_skip(p, TOK_COLON) && p->cur.type != TOK_COLON &&
                        p->cur.type != TOK_RBRACKET && p->cur.type != TOK_COMMA;

        parser_push(p, &parts, has_part ? parse_expression(p, true) : NULL);
    }
    parser_set_args(p, e, &parts);
    return e;
}

static struct expr *parse_brackets(struct parser *p, struct expr *object)
{
    struct expr *index = NULL, *e;

    parser_advance(p);
    if (p->cur.type != TOK_COLON)
        index = parse_expression(p, true);
    if (p->cur.type == TOK_COLON)
        e = parse_slice(p, object, index);
    else
        e = parser_node(p, EXPR_ITEM, object, index);
    if (p->cur.type == TOK_COMMA)
        parser_refuse(p, "subscript with", ",");
    parser_expect(p, TOK_RBRACKET, "]");
    return e;
}

static struct expr *parse_dot(struct parser *p, struct expr *object)
{
    struct expr *e;

    parser_advance(p);
    if (p->cur.type == TOK_INT)
        return parser_node(p, EXPR_ITEM, object, parse_number(p));
    e = parser_node(p, EXPR_ATTR, object, NULL);
    e->name = parser_name(p);
    return e;
}

struct expr *parse_postfix(struct parser *p, struct expr *e)
{
    for (;;) {
        if (p->cur.type == TOK_DOT)
            e = parse_dot(p, e);
        else if (p->cur.type == TOK_LBRACKET)
            e = parse_brackets(p, e);
        else if (p->cur.type == TOK_LPAREN)
            e = parse_call(p, e);
        else
            return e;
    }
}

/* map("name"), select("name"), selectattr("attribute", "name"): the inner name is as good as one
 * that stands in the syntax. */
static void check_inner_name(struct parser *p, const struct expr *e)
{
    bool is_map = strcmp(e->name, "map") == 0;
    bool is_attr = strcmp(e->name, "selectattr") == 0 || strcmp(e->name, "rejectattr") == 0;
    bool is_select = strcmp(e->name, "select") == 0 || strcmp(e->name, "reject") == 0;
    size_t i = is_attr ? 1 : 0;
    const struct jval *v;
    char *name;

    if ((!is_map && !is_attr && !is_select) || e->n_args <= i || e->args[i]->kind != EXPR_CONST ||
        e->args[i]->value.type != JT_STRING)
        return;
    v = &e->args[i]->value;
    name = arena_strndup(p->arena, v->s->data, v->s->len);
    if (name == NULL)
        parser_fail(p, ST_TOO_LARGE, "is too large");
    else if (strlen(name) != v->s->len || (is_map ? jinja_filter(name) : jinja_test(name)) == NULL)
        parser_unknown(p, is_map ? "filter" : "test", name);
}

/* Names of filters and tests may have dots; none of ours has, so such a name is refused whole. */
static const char *dotted_name(struct parser *p)
{
    const char *name = parser_name(p);

    while (parser_skip(p, TOK_DOT)) {
        const char *more = parser_name(p);
        size_t len = strlen(name) + strlen(more) + 2;
        char *both = parser_alloc(p, len, 1);

        if (both == NULL)
            break;
        snprintf(both, len, "%s.%s", name, more);
        name = both;
    }
    return name;
}

struct expr *parse_filters(struct parser *p, struct expr *input)
{
    do {
        struct expr *e = parser_node(p, EXPR_FILTER, input, NULL);

        e->name = dotted_name(p);
        e->func = jinja_filter(e->name);
        if (e->func == NULL)
            parser_unknown(p, "filter", e->name);
        if (p->cur.type == TOK_LPAREN)
            parse_args(p, e);
        if (p->status == ST_OK)
            check_inner_name(p, e);
        input = e;
    } while (parser_skip(p, TOK_PIPE));
    return input;
}

/* Whether a test's only argument stands beside it without parentheses: "is divisibleby 3". */
static bool begins_test_argument(const struct parser *p)
{
    switch (p->cur.type) {
    case TOK_NAME:
        return !parser_is_name(&p->cur, "else") && !parser_is_name(&p->cur, "or") &&
               !parser_is_name(&p->cur, "and");
    case TOK_STRING:
    case TOK_INT:
    case TOK_FLOAT:
    case TOK_LBRACKET:
    case TOK_LBRACE:
        return true;
    default:
        return false;
    }
}

struct expr *parse_test(struct parser *p, struct expr *input)
{
    struct expr *e = parser_node(p, EXPR_TEST, input, NULL);
    bool negated;

    parser_advance(p);
    negated = parser_skip_name(p, "not");
    e->name = dotted_name(p);
    e->func = jinja_test(e->name);
    if (e->func == NULL)
        parser_unknown(p, "test", e->name);
    if (p->cur.type == TOK_LPAREN) {
        parse_args(p, e);
    } else if (parser_is_name(&p->cur, "is")) {
        parser_fail(p, ST_INVALID, "chains tests with is");
    } else if (begins_test_argument(p)) {
        struct expr_list args = {0};

        parser_push(p, &args, parse_postfix(p, parse_primary(p)));
        parser_set_args(p, e, &args);
    }
    return negated ? parser_node(p, EXPR_NOT, e, NULL) : e;
}
