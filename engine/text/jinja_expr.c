/* Expressions, in the order and with the quirks of Jinja 3's grammar. */
#include "engine/text/jinja_parse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_run.h"
#include "engine/text/jinja_tables.h"

static unsigned depth_of(const struct expr *e)
{
    return e == NULL ? 0 : e->depth;
}

static void deepen(struct parser *p, struct expr *e, const struct expr *child)
{
    if (depth_of(child) >= e->depth)
        e->depth = depth_of(child) + 1;
    if (e->depth > JINJA_TREE_DEPTH_MAX)
        parser_fail(p, ST_TOO_LARGE, "nests too deeply");
}

static struct expr *node(struct parser *p, enum expr_kind kind, struct expr *a, struct expr *b)
{
    struct expr *e = parser_alloc(p, 1, sizeof *e);

    if (e == NULL)
        return &p->spare_expr;
    e->kind = kind;
    e->line = p->cur.line;
    e->a = a;
    e->b = b;
    deepen(p, e, a);
    deepen(p, e, b);
    return e;
}

static void set_args(struct parser *p, struct expr *e, const struct expr_list *list)
{
    e->args = list->items;
    e->n_args = list->n;
    for (size_t i = 0; i < list->n; i++)
        deepen(p, e, list->items[i]);
}

static struct expr *constant(struct parser *p, struct jval v)
{
    struct expr *e = node(p, EXPR_CONST, NULL, NULL);

    e->value = v;
    return e;
}

static struct expr *binary(struct parser *p, enum token_type op, struct expr *a, struct expr *b)
{
    struct expr *e = node(p, EXPR_BINARY, a, b);

    e->op = op;
    return e;
}

/* Copies a number's digits without its underscores; "" when it doesn't fit. */
static void plain_digits(const struct token *t, char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < t->len && n + 1 < cap; i++) {
        if (t->text[i] != '_')
            out[n++] = t->text[i];
    }
    out[n + 1 < cap ? n : 0] = '\0';
}

static struct expr *parse_number(struct parser *p)
{
    static const char prefixes[] = "bBoOxX";
    static const int bases[] = {2, 2, 8, 8, 16, 16};
    char text[256];
    struct jval v;
    int base = 10;

    plain_digits(&p->cur, text, sizeof text);
    errno = 0;
    if (p->cur.type == TOK_FLOAT) {
        v = jv_float(strtod(text, NULL));
    } else {
        const char *prefix = text[0] == '0' && text[1] != '\0' ? strchr(prefixes, text[1]) : NULL;

        if (prefix != NULL)
            base = bases[prefix - prefixes];
        v = jv_int(strtoll(base == 10 ? text : text + 2, NULL, base));
        if (errno == ERANGE || text[0] == '\0')
            parser_refuse(p, "integer of more than 64 bits", "");
    }
    parser_advance(p);
    return constant(p, v);
}

/* The code point of \ooo, \xhh, \uhhhh or \Uhhhhhhhh at s[0]; *used its length. */
static long escape_number(const char *s, size_t len, size_t *used)
{
    size_t want = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0, n = 0;
    int base = want != 0 ? 16 : 8;
    char digits[9] = "";
    size_t from = want != 0 ? 1 : 0;

    while (from + n < len && n < (want != 0 ? want : 3) &&
           strchr(base == 16 ? "0123456789abcdefABCDEF" : "01234567", s[from + n]) != NULL) {
        digits[n] = s[from + n];
        n++;
    }
    *used = from + n;
    return want != 0 && n != want ? -1 : strtol(digits, NULL, base);
}

/* One escape after the backslash at s; appends to out. Returns the bytes used. */
static size_t unescape_one(struct parser *p, const char *s, size_t len, char *out, size_t *n)
{
    static const char names[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = memchr(names, s[0], sizeof names - 1);
    size_t used;
    long cp;

    if (s[0] == '\n')
        return 1;
    if (simple != NULL) {
        out[(*n)++] = values[simple - names];
        return 1;
    }
    if (s[0] == 'N')
        parser_refuse(p, "escape", "\\N");
    if (strchr("xuU01234567", s[0]) == NULL) {
        out[(*n)++] = '\\'; /* an unknown escape stays as it is, as in Python */
        return 0;
    }
    cp = escape_number(s, len, &used);
    if (cp < 0 || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        parser_fail(p, ST_INVALID, "has a bad escape in a string");
    else
        *n += utf8_encode((uint32_t)cp, out + *n);
    return used;
}

/* Appends the string token's value to out; no escape is shorter than its value. */
static void unescape(struct parser *p, const struct token *t, char *out, size_t *n)
{
    for (size_t i = 0; i < t->len && p->status == ST_OK;) {
        if (t->text[i] != '\\') {
            out[(*n)++] = t->text[i++];
            continue;
        }
        i++;
        i += unescape_one(p, t->text + i, t->len - i, out, n);
    }
}

static struct expr *parse_string(struct parser *p)
{
    size_t n = 0, total = 0;
    char *text = NULL;
    struct jstr *s;

    while (p->cur.type == TOK_STRING) {
        char *longer = parser_alloc(p, total + p->cur.len + 1, 1);

        if (longer == NULL)
            return constant(p, jv_none());
        if (n != 0)
            memcpy(longer, text, n);
        total += p->cur.len;
        text = longer;
        unescape(p, &p->cur, text, &n);
        parser_advance(p);
    }
    s = parser_alloc(p, 1, sizeof *s);
    if (s == NULL)
        return constant(p, jv_none());
    *s = js_of(text, n, true);
    return constant(p, jv_str(s));
}

static struct expr *parse_list(struct parser *p)
{
    struct expr_list items = {0};
    struct expr *e = node(p, EXPR_LIST, NULL, NULL);

    parser_advance(p);
    while (p->status == ST_OK && p->cur.type != TOK_RBRACKET) {
        parser_push(p, &items, parse_expression(p, true));
        if (!parser_skip(p, TOK_COMMA))
            break;
    }
    parser_expect(p, TOK_RBRACKET, "]");
    set_args(p, e, &items);
    return e;
}

static struct expr *parse_dict(struct parser *p)
{
    struct expr_list items = {0};
    struct expr *e = node(p, EXPR_DICT, NULL, NULL);

    parser_advance(p);
    while (p->status == ST_OK && p->cur.type != TOK_RBRACE) {
        parser_push(p, &items, parse_expression(p, true));
        parser_expect(p, TOK_COLON, ":");
        parser_push(p, &items, parse_expression(p, true));
        if (!parser_skip(p, TOK_COMMA))
            break;
    }
    parser_expect(p, TOK_RBRACE, "}");
    set_args(p, e, &items);
    return e;
}

static struct expr *parse_parens(struct parser *p)
{
    struct expr *e;

    parser_advance(p);
    if (p->cur.type == TOK_RPAREN)
        e = node(p, EXPR_TUPLE, NULL, NULL);
    else
        e = parse_tuple(p, true, NULL);
    parser_expect(p, TOK_RPAREN, ")");
    return e;
}

static struct expr *parse_named(struct parser *p)
{
    static const char *const special[] = {"caller", "varargs", "kwargs"};
    struct expr *e = node(p, EXPR_NAME, NULL, NULL);
    const char *name = parser_name(p);

    e->name = name;
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0)
        return constant(p, jv_bool(true));
    if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0)
        return constant(p, jv_bool(false));
    if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0)
        return constant(p, jv_none());
    for (size_t i = 0; p->macro_depth != 0 && i < COUNT_OF(special); i++) {
        if (strcmp(name, special[i]) == 0)
            parser_refuse(p, "macro variable", name);
    }
    return e;
}

static struct expr *parse_primary(struct parser *p)
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
        return node(p, EXPR_CONST, NULL, NULL);
    }
}

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
        parse_argument(p, call, &args, &named);
        if (!parser_skip(p, TOK_COMMA))
            break;
    }
    parser_expect(p, TOK_RPAREN, ")");
    set_args(p, call, &args);
    call->named = named.items;
    call->n_named = named.n;
    for (size_t i = 0; i < named.n; i++)
        deepen(p, call, named.items[i]);
}

static struct expr *parse_call(struct parser *p, struct expr *callee)
{
    static const char *const refused[] = {"lipsum", "cycler", "joiner"};
    struct expr *e = node(p, EXPR_CALL, callee, NULL);

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
    struct expr *e = node(p, EXPR_SLICE, object, NULL);
    struct expr_list parts = {0};

    parser_push(p, &parts, start);
    for (int i = 0; i < 2; i++) {
        bool has_part = parser_skip(p, TOK_COLON) && p->cur.type != TOK_COLON &&
                        p->cur.type != TOK_RBRACKET && p->cur.type != TOK_COMMA;

        parser_push(p, &parts, has_part ? parse_expression(p, true) : NULL);
    }
    set_args(p, e, &parts);
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
        e = node(p, EXPR_ITEM, object, index);
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
        return node(p, EXPR_ITEM, object, parse_number(p));
    e = node(p, EXPR_ATTR, object, NULL);
    e->name = parser_name(p);
    return e;
}

static struct expr *parse_postfix(struct parser *p, struct expr *e)
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
    else if (is_map && jinja_filter(name) == NULL)
        parser_refuse(p, "filter", name);
    else if (!is_map && jinja_test(name) == NULL)
        parser_refuse(p, "test", name);
}

/* Names of filters and tests may have dots; none of ours has, so such a name is refused whole. */
static const char *dotted_name(struct parser *p)
{
    const char *name = parser_name(p);

    while (parser_skip(p, TOK_DOT)) {
        const char *more = parser_name(p);
        size_t n = strlen(name), m = strlen(more);
        char *both = parser_alloc(p, n + m + 2, 1);

        if (both == NULL)
            break;
        memcpy(both, name, n);
        both[n] = '.';
        memcpy(both + n + 1, more, m);
        name = both;
    }
    return name;
}

struct expr *parse_filters(struct parser *p, struct expr *input)
{
    do {
        struct expr *e = node(p, EXPR_FILTER, input, NULL);

        e->name = dotted_name(p);
        e->func = jinja_filter(e->name);
        if (e->func == NULL)
            parser_refuse(p, "filter", e->name);
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

static struct expr *parse_test(struct parser *p, struct expr *input)
{
    struct expr *e = node(p, EXPR_TEST, input, NULL);
    bool negated;

    parser_advance(p);
    negated = parser_skip_name(p, "not");
    e->name = dotted_name(p);
    e->func = jinja_test(e->name);
    if (e->func == NULL)
        parser_refuse(p, "test", e->name);
    if (p->cur.type == TOK_LPAREN) {
        parse_args(p, e);
    } else if (parser_is_name(&p->cur, "is")) {
        parser_fail(p, ST_INVALID, "chains tests with is");
    } else if (begins_test_argument(p)) {
        struct expr_list args = {0};

        parser_push(p, &args, parse_postfix(p, parse_primary(p)));
        set_args(p, e, &args);
    }
    return negated ? node(p, EXPR_NOT, e, NULL) : e;
}

static struct expr *parse_unary(struct parser *p, bool with_filter)
{
    struct expr *e;

    if (p->cur.type == TOK_SUB || p->cur.type == TOK_ADD) {
        enum expr_kind kind = p->cur.type == TOK_SUB ? EXPR_NEGATE : EXPR_PLUS;

        if (!parser_enter(p))
            return node(p, EXPR_CONST, NULL, NULL);
        parser_advance(p);
        e = node(p, kind, parse_unary(p, false), NULL);
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
    e = node(p, EXPR_CONCAT, NULL, NULL);
    parser_push(p, &parts, first);
    while (parser_skip(p, TOK_TILDE))
        parser_push(p, &parts, parse_product(p));
    set_args(p, e, &parts);
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
            e = node(p, EXPR_COMPARE, first, NULL);
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
    set_args(p, e, &operands);
    return e;
}

static struct expr *parse_not(struct parser *p)
{
    struct expr *e;

    if (!parser_is_name(&p->cur, "not"))
        return parse_compare(p);
    if (!parser_enter(p))
        return node(p, EXPR_CONST, NULL, NULL);
    parser_advance(p);
    e = node(p, EXPR_NOT, parse_not(p), NULL);
    parser_leave(p);
    return e;
}

static struct expr *parse_and(struct parser *p)
{
    struct expr *e = parse_not(p);

    while (parser_skip_name(p, "and"))
        e = node(p, EXPR_AND, e, parse_not(p));
    return e;
}

static struct expr *parse_or(struct parser *p)
{
    struct expr *e = parse_and(p);

    while (parser_skip_name(p, "or"))
        e = node(p, EXPR_OR, e, parse_and(p));
    return e;
}

struct expr *parse_expression(struct parser *p, bool with_cond)
{
    struct expr *e;

    if (!parser_enter(p))
        return node(p, EXPR_CONST, NULL, NULL);
    e = parse_or(p);
    while (with_cond && parser_skip_name(p, "if")) {
        struct expr *cond = node(p, EXPR_COND, e, parse_or(p));

        if (parser_skip_name(p, "else"))
            cond->c = parse_expression(p, true);
        deepen(p, cond, cond->c);
        e = cond;
    }
    parser_leave(p);
    return e;
}

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
    e = node(p, EXPR_TUPLE, NULL, NULL);
    parser_push(p, &items, first);
    while (parser_skip(p, TOK_COMMA) && !ends_tuple(p, until))
        parser_push(p, &items, parse_expression(p, with_cond));
    set_args(p, e, &items);
    return e;
}

static struct expr *target_name(struct parser *p, bool with_namespace)
{
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    struct expr *e = node(p, EXPR_NAME, NULL, NULL), *attr;

    e->name = parser_name(p);
    for (size_t i = 0; i < COUNT_OF(constants); i++) {
        if (strcmp(e->name, constants[i]) == 0)
            parser_fail(p, ST_INVALID, "assigns to '%s'", e->name);
    }
    if (!with_namespace || !parser_skip(p, TOK_DOT))
        return e;
    attr = node(p, EXPR_ATTR, e, NULL);
    attr->name = parser_name(p);
    return attr;
}

static struct expr *parse_target_one(struct parser *p, bool with_namespace)
{
    struct expr *e;

    if (p->cur.type != TOK_LPAREN)
        return target_name(p, with_namespace);
    if (!parser_enter(p))
        return node(p, EXPR_CONST, NULL, NULL);
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
    e = node(p, EXPR_TUPLE, NULL, NULL);
    parser_push(p, &items, first);
    while (parser_skip(p, TOK_COMMA) && !ends_tuple(p, until))
        parser_push(p, &items, parse_target_one(p, with_namespace));
    set_args(p, e, &items);
    return e;
}
