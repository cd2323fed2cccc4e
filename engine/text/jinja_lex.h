/* Tokens of a template, one at a time, as Jinja 3's lexer cuts them with trim_blocks and
 * lstrip_blocks on. The source has been normalized (newlines are \n) and is valid UTF-8. */
#ifndef ENGINE_TEXT_JINJA_LEX_H
#define ENGINE_TEXT_JINJA_LEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Deepest nesting of brackets inside one tag. */
#define LEX_BRACKETS_MAX 100

enum token_type {
    TOK_EOF,
    TOK_DATA, /* text outside of tags; never empty */
    TOK_PRINT_BEGIN,
    TOK_PRINT_END,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING, /* without its quotes, escapes not yet resolved */
    TOK_INT,
    TOK_FLOAT,
    TOK_ADD,
    TOK_SUB,
    TOK_MUL,
    TOK_DIV,
    TOK_FLOORDIV,
    TOK_MOD,
    TOK_POW,
    TOK_TILDE,
    TOK_EQ,
    TOK_NE,
    TOK_LT,
    TOK_LE,
    TOK_GT,
    TOK_GE,
    TOK_ASSIGN,
    TOK_DOT,
    TOK_COLON,
    TOK_PIPE,
    TOK_COMMA,
    TOK_SEMICOLON,
    TOK_LPAREN,
    TOK_RPAREN,
    TOK_LBRACKET,
    TOK_RBRACKET,
    TOK_LBRACE,
    TOK_RBRACE,
};

struct token {
    enum token_type type;
    unsigned line;
    const char *text; /* into the source */
    size_t len;
};

struct lexer {
    const char *src;
    size_t len, pos;
    unsigned line;
    size_t line_pos; /* `line` is the number of this position's line */
    enum { LEX_ROOT, LEX_PRINT, LEX_BLOCK, LEX_RAW } state;
    char brackets[LEX_BRACKETS_MAX]; /* closers that are due */
    size_t n_brackets;
};

void lex_init(struct lexer *l, const char *src, size_t len);
MUST_CHECK enum status lex_next(struct lexer *l, struct token *out, struct reason *why);
/* Bytes of the white space character (Python's str.isspace) at s; 0: it is none. */
size_t lex_space(const char *s, size_t len);
bool lex_is_space(unsigned cp);

#endif
