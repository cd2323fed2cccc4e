/* Between jinja_lex.c and jinja_lex_tag.c only. */
#ifndef ENGINE_TEXT_JINJA_LEX_PARTS_H
#define ENGINE_TEXT_JINJA_LEX_PARTS_H

#include "engine/text/jinja_lex.h"

/* Whether `what` stands at pos, which may be behind the end. */
bool lex_at(const struct lexer *l, size_t pos, const char *what);
/* The first position from pos on that is no white space. */
size_t lex_skip_space(const struct lexer *l, size_t pos);
/* The number of its line; positions are asked for in ascending order. */
unsigned lex_line_at(struct lexer *l, size_t pos);
struct token lex_make(struct lexer *l, enum token_type type, size_t from, size_t to);
/* Position after a tag's end at pos ("%}", "-%}" with the space after it, "+%}" or "%}" with the
 * one newline that trim_blocks takes), or 0 when there is none. */
size_t lex_block_end(const struct lexer *l, size_t pos, const char *end);
/* The next token inside of a tag, or the tag's end. */
MUST_CHECK enum status lex_in_tag(struct lexer *l, struct token *out, struct reason *why);

#endif
