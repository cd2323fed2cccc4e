/* What the parser's files stand on: the tokens ahead, failures, memory and depth. */
#include "engine/text/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/text/jinja_run.h"

void parser_fail(struct parser *p, enum status st, const char *fmt, ...)
{
    char what[200];
    va_list ap;

    if (p->status != ST_OK)
        return;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    p->status = fail(p->why, st, "the chat template %s (line %u)", what, p->cur.line);
    p->cur.type = p->next.type = TOK_EOF;
}

void parser_refuse(struct parser *p, const char *what, const char *name)
{
    parser_fail(p, ST_UNSUPPORTED, "uses something that is not supported: the %s%s%.80s%s", what,
                *name == '\0' ? "" : " '", name, *name == '\0' ? "" : "'");
}

void parser_unknown(struct parser *p, const char *what, const char *name)
{
    if (p->is_conditional || p->unknown_name != NULL)
        return;
    p->unknown_what = what;
    p->unknown_name = name;
}

void *parser_alloc(struct parser *p, size_t count, size_t bytes_each)
{
    void *m = p->status != ST_OK ? NULL : arena_array(p->arena, count, bytes_each);

    if (m == NULL)
        parser_fail(p, ST_TOO_LARGE, "is too large");
    return m;
}

void parser_advance(struct parser *p)
{
    p->cur = p->next;
    if (p->status != ST_OK)
        return;
    p->status = lex_next(&p->lexer, &p->next, p->why);
    if (p->status != ST_OK)
        p->cur.type = p->next.type = TOK_EOF;
}

bool parser_is_name(const struct token *t, const char *name)
{
    return t->type == TOK_NAME && t->len == strlen(name) && memcmp(t->text, name, t->len) == 0;
}

bool parser_skip_name(struct parser *p, const char *name)
{
    if (!parser_is_name(&p->cur, name))
        return false;
    parser_advance(p);
    return true;
}

bool parser_skip(struct parser *p, enum token_type type)
{
    if (p->cur.type != type)
        return false;
    parser_advance(p);
    return true;
}

void parser_expect(struct parser *p, enum token_type type, const char *what)
{
    if (!parser_skip(p, type))
        parser_fail(p, ST_INVALID, "lacks '%s'", what);
}

const char *parser_name(struct parser *p)
{
    const char *name;

    if (p->cur.type != TOK_NAME) {
        parser_fail(p, ST_INVALID, "lacks a name");
        return "";
    }
    name = arena_strndup(p->arena, p->cur.text, p->cur.len);
    if (name == NULL) {
        parser_fail(p, ST_TOO_LARGE, "is too large");
        return "";
    }
    parser_advance(p);
    return name;
}

bool parser_enter(struct parser *p)
{
    if (p->depth >= JINJA_PARSE_DEPTH_MAX)
        parser_fail(p, ST_TOO_LARGE, "nests too deeply");
    if (p->status != ST_OK)
        return false;
    p->depth++;
    return true;
}

void parser_leave(struct parser *p)
{
    p->depth--;
}

void parser_push(struct parser *p, struct expr_list *list, struct expr *e)
{
    if (list->n == list->cap) {
        size_t cap = list->cap == 0 ? 4 : list->cap * 2;
        struct expr **items = parser_alloc(p, cap, sizeof(struct expr *));

        if (items == NULL)
            return;
        if (list->n != 0)
            memcpy(items, list->items, list->n * sizeof(struct expr *));
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = e;
}
