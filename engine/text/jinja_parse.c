/* Statements: the text between tags, and the tags. */
#include "engine/text/jinja_parse.h"

#include <string.h>

#include "engine/text/jinja_run.h"

static struct stmt *parse_body(struct parser *p, const char *const *ends);

static struct stmt *new_stmt(struct parser *p, enum stmt_kind kind)
{
    struct stmt *s = parser_alloc(p, 1, sizeof *s);

    if (s == NULL)
        return &p->spare_stmt;
    s->kind = kind;
    s->line = p->cur.line;
    return s;
}

/* The body of a tag, from the tag's own end to one of `ends`, which becomes the current token. */
static struct stmt *parse_block(struct parser *p, const char *const *ends, bool is_conditional)
{
    bool outer = p->is_conditional;
    struct stmt *body;

    parser_skip(p, TOK_COLON); /* "{% if x: %}", as Jinja allows */
    parser_expect(p, TOK_BLOCK_END, "%}");
    if (!parser_enter(p))
        return NULL;
    p->is_conditional = is_conditional;
    body = parse_body(p, ends);
    p->is_conditional = outer;
    parser_leave(p);
    if (p->cur.type == TOK_EOF)
        parser_fail(p, ST_INVALID, "ends before '%s'", ends[0]);
    return body;
}

static struct stmt *parse_inner(struct parser *p, const char *const *ends)
{
    return parse_block(p, ends, false);
}

/* The same for a tag with one possible end, which is taken. */
static struct stmt *parse_inner_to(struct parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct stmt *body = parse_inner(p, ends);

    parser_skip_name(p, end);
    return body;
}

/* Conditions follow each other in `or_else` without recursion, however many elifs there are. */
static struct stmt *parse_if(struct parser *p)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL}, *const last[] = {"endif",
                                                                                        NULL};
    struct stmt *first = new_stmt(p, STMT_IF), *s = first;
    bool outer = p->is_conditional;

    for (;;) {
        p->is_conditional = true;
        s->expr = parse_tuple(p, false, NULL);
        p->is_conditional = outer;
        s->body = parse_block(p, ends, true);
        if (!parser_skip_name(p, "elif"))
            break;
        s->or_else = new_stmt(p, STMT_IF);
        s->or_else->is_elif = true;
        s = s->or_else;
    }
    if (parser_skip_name(p, "else"))
        s->or_else = parse_block(p, last, true);
    parser_skip_name(p, "endif");
    return first;
}

static void check_loop_target(struct parser *p, const struct expr *target)
{
    if (target->kind == EXPR_NAME && target->name != NULL && strcmp(target->name, "loop") == 0)
        parser_fail(p, ST_INVALID, "assigns to the special variable 'loop'");
    for (size_t i = 0; i < target->n_args && p->status == ST_OK; i++)
        check_loop_target(p, target->args[i]);
}

static struct stmt *parse_for(struct parser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct stmt *s = new_stmt(p, STMT_FOR);

    s->target = parse_target(p, false, "in");
    check_loop_target(p, s->target);
    if (!parser_skip_name(p, "in"))
        parser_fail(p, ST_INVALID, "lacks 'in'");
    s->expr = parse_tuple(p, false, "recursive");
    if (parser_skip_name(p, "if"))
        s->cond = parse_expression(p, true);
    if (parser_is_name(&p->cur, "recursive"))
        parser_refuse(p, "loop modifier", "recursive");
    p->loop_depth++;
    s->body = parse_inner(p, ends);
    p->loop_depth--;
    if (parser_skip_name(p, "else"))
        s->or_else = parse_inner_to(p, "endfor");
    else
        parser_skip_name(p, "endfor");
    return s;
}

static struct stmt *parse_set(struct parser *p)
{
    struct stmt *s = new_stmt(p, STMT_SET);

    s->target = parse_target(p, true, NULL);
    if (parser_skip(p, TOK_ASSIGN)) {
        s->expr = parse_tuple(p, true, NULL);
        return s;
    }
    s->kind = STMT_SET_BLOCK;
    if (parser_skip(p, TOK_PIPE))
        s->expr = parse_filters(p, NULL);
    s->body = parse_inner_to(p, "endset");
    return s;
}

static void parse_params(struct parser *p, struct jmacro_def *m)
{
    struct expr_list defaults = {0};
    bool has_default = false;

    parser_expect(p, TOK_LPAREN, "(");
    while (p->status == ST_OK && p->cur.type != TOK_RPAREN) {
        const char **params = parser_alloc(p, m->n_params + 1, sizeof *params);
        struct expr *value = NULL;

        if (m->n_params == JINJA_ARGUMENTS_MAX)
            parser_fail(p, ST_TOO_LARGE, "has a macro with too many parameters");
        if (params == NULL)
            return;
        if (m->n_params != 0)
            memcpy(params, m->params, m->n_params * sizeof *params);
        params[m->n_params] = parser_name(p);
        m->params = params;
        if (parser_skip(p, TOK_ASSIGN))
            value = parse_expression(p, true);
        else if (has_default)
            parser_fail(p, ST_INVALID, "has a parameter without a default after one with");
        has_default = value != NULL;
        parser_push(p, &defaults, value);
        m->n_params = defaults.n;
        if (!parser_skip(p, TOK_COMMA))
            break;
    }
    m->defaults = defaults.items;
    parser_expect(p, TOK_RPAREN, ")");
}

/* A macro's body is outside of the loops around it. */
static struct stmt *parse_macro(struct parser *p)
{
    struct stmt *s = new_stmt(p, STMT_MACRO);
    int loops = p->loop_depth;

    s->macro.name = parser_name(p);
    p->loop_depth = 0;
    p->macro_depth++;
    parse_params(p, &s->macro);
    s->body = parse_inner_to(p, "endmacro");
    p->macro_depth--;
    p->loop_depth = loops;
    return s;
}

static struct stmt *parse_filter_block(struct parser *p)
{
    struct stmt *s = new_stmt(p, STMT_FILTER_BLOCK);

    s->expr = parse_filters(p, NULL);
    s->body = parse_inner_to(p, "endfilter");
    return s;
}

static struct stmt *parse_with(struct parser *p)
{
    struct stmt *s = new_stmt(p, STMT_WITH);
    struct expr_list targets = {0}, values = {0};

    while (p->status == ST_OK && p->cur.type != TOK_BLOCK_END) {
        if (targets.n != 0)
            parser_expect(p, TOK_COMMA, ",");
        parser_push(p, &targets, parse_target(p, false, NULL));
        parser_expect(p, TOK_ASSIGN, "=");
        parser_push(p, &values, parse_expression(p, true));
    }
    s->targets = targets.items;
    s->values = values.items;
    s->n_targets = values.n;
    s->body = parse_inner_to(p, "endwith");
    return s;
}

/* Hugging Face's tag around what the assistant wrote: marks it for training, prints it as it is. */
static struct stmt *parse_generation(struct parser *p)
{
    struct stmt *s = new_stmt(p, STMT_SCOPE);

    s->body = parse_inner_to(p, "endgeneration");
    return s;
}

static struct stmt *parse_break(struct parser *p)
{
    if (p->loop_depth == 0)
        parser_fail(p, ST_INVALID, "has a break outside of a loop");
    return new_stmt(p, STMT_BREAK);
}

static struct stmt *parse_continue(struct parser *p)
{
    if (p->loop_depth == 0)
        parser_fail(p, ST_INVALID, "has a continue outside of a loop");
    return new_stmt(p, STMT_CONTINUE);
}

static const struct {
    const char *name;
    struct stmt *(*parse)(struct parser *p);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"generation", parse_generation},
    {"break", parse_break},
    {"continue", parse_continue},
};

static struct stmt *parse_tag(struct parser *p)
{
    const char *name;

    for (size_t i = 0; i < COUNT_OF(tags); i++) {
        struct stmt *s;

        if (!parser_skip_name(p, tags[i].name))
            continue;
        s = tags[i].parse(p);
        parser_expect(p, TOK_BLOCK_END, "%}");
        return s;
    }
    if (p->cur.type == TOK_NAME && p->cur.len >= 3 && memcmp(p->cur.text, "end", 3) == 0)
        parser_fail(p, ST_INVALID, "has '%.*s' without its beginning",
                    (int)(p->cur.len < 40 ? p->cur.len : 40), p->cur.text);
    name = parser_name(p);
    parser_refuse(p, "tag", name);
    return NULL;
}

static struct stmt *parse_output(struct parser *p)
{
    struct stmt *s = new_stmt(p, STMT_PRINT);

    s->expr = parse_tuple(p, true, NULL);
    return s;
}

static struct stmt *parse_text(struct parser *p)
{
    struct stmt *s = new_stmt(p, STMT_TEXT);

    s->text = js_of(p->cur.text, p->cur.len, true);
    parser_advance(p);
    return s;
}

static bool is_end(const struct parser *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++) {
        if (parser_is_name(&p->cur, *ends))
            return true;
    }
    return false;
}

/* Statements up to a tag named in `ends` (its name is then the current token) or the source's end.
 */
static struct stmt *parse_body(struct parser *p, const char *const *ends)
{
    struct stmt *first = NULL, **link = &first;

    while (p->cur.type != TOK_EOF) {
        struct stmt *s;

        if (p->cur.type == TOK_DATA) {
            s = parse_text(p);
        } else if (parser_skip(p, TOK_PRINT_BEGIN)) {
            s = parse_output(p);
            parser_expect(p, TOK_PRINT_END, "}}");
        } else {
            parser_expect(p, TOK_BLOCK_BEGIN, "{%");
            if (is_end(p, ends))
                return first;
            s = parse_tag(p);
        }
        if (p->unknown_name != NULL)
            parser_refuse(p, p->unknown_what, p->unknown_name);
        if (p->status != ST_OK)
            return first;
        *link = s;
        link = &s->next;
    }
    return first;
}

enum status jinja_parse(struct arena *arena, const char *src, size_t len, struct stmt **out,
                        struct reason *why)
{
    struct parser p = {.arena = arena, .why = why};
    struct stmt *body;

    lex_init(&p.lexer, src, len);
    parser_advance(&p);
    parser_advance(&p);
    body = parse_body(&p, NULL);
    if (p.status == ST_OK)
        *out = body;
    return p.status;
}
