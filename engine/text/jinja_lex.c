/* Text between tags: data, comments, raw blocks, and the white space that a tag takes. */
#include "engine/text/jinja_lex.h"

#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_lex_parts.h"

bool lex_is_space(unsigned cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

size_t lex_space(const char *s, size_t len)
{
    uint32_t cp;
    int n = utf8_decode(s, len, &cp);

    return n > 0 && lex_is_space(cp) ? (size_t)n : 0;
}

void lex_init(struct lexer *l, const char *src, size_t len)
{
    *l = (struct lexer){.src = src, .len = len, .line = 1};
}

bool lex_at(const struct lexer *l, size_t pos, const char *what)
{
    size_t n = strlen(what);

    return pos <= l->len && l->len - pos >= n && memcmp(l->src + pos, what, n) == 0;
}

size_t lex_skip_space(const struct lexer *l, size_t pos)
{
    size_t n;

    while ((n = lex_space(l->src + pos, l->len - pos)) != 0)
        pos += n;
    return pos;
}

unsigned lex_line_at(struct lexer *l, size_t pos)
{
    for (; l->line_pos < pos; l->line_pos++)
        l->line += l->src[l->line_pos] == '\n';
    return l->line;
}

struct token lex_make(struct lexer *l, enum token_type type, size_t from, size_t to)
{
    return (struct token){
        .type = type, .line = lex_line_at(l, from), .text = l->src + from, .len = to - from};
}

size_t lex_block_end(const struct lexer *l, size_t pos, const char *end)
{
    if (l->src[pos] == '-' && lex_at(l, pos + 1, end))
        return lex_skip_space(l, pos + 3);
    if (l->src[pos] == '+' && lex_at(l, pos + 1, end))
        return pos + 3;
    if (lex_at(l, pos, end))
        return pos + 2 + (lex_at(l, pos + 2, "\n") ? 1 : 0);
    return 0;
}

/* End of the text [from, to) before a tag at `to` whose sign is `sign`. */
static size_t strip_before(const struct lexer *l, size_t from, size_t to, char sign, bool is_print)
{
    size_t line = to, p;

    if (sign == '-') {
        size_t end = from;

        for (p = from; p < to;) {
            size_t n = lex_space(l->src + p, to - p);

            p += n != 0 ? n : 1;
            if (n == 0)
                end = p;
        }
        return end;
    }
    if (sign == '+' || is_print)
        return to;
    while (line > from && l->src[line - 1] != '\n')
        line--;
    if (line == from && from != 0 && l->src[from - 1] != '\n')
        return to;
    for (p = line; p < to;) {
        size_t n = lex_space(l->src + p, to - p);

        if (n == 0)
            return to;
        p += n;
    }
    return line;
}

/* Length of "{% word %}" at pos with either sign, up to and including what its end takes; 0: no. */
static size_t raw_tag(const struct lexer *l, size_t pos, const char *word, bool trim)
{
    size_t p = pos + 2, end;

    if (!lex_at(l, pos, "{%"))
        return 0;
    if (lex_at(l, p, "-") || lex_at(l, p, "+"))
        p++;
    p = lex_skip_space(l, p);
    if (!lex_at(l, p, word))
        return 0;
    p = lex_skip_space(l, p + strlen(word));
    if (p >= l->len || (!trim && l->src[p] == '+'))
        return 0;
    end = lex_block_end(l, p, "%}");
    if (end != 0 && !trim && l->src[p] != '-')
        end = p + 2; /* the newline after {% raw %} stays */
    return end == 0 ? 0 : end - pos;
}

static char sign_at(const struct lexer *l, size_t pos)
{
    return lex_at(l, pos, "-") ? '-' : lex_at(l, pos, "+") ? '+' : ' ';
}

/* Inside {% raw %}: everything up to its end is data. */
static enum status lex_raw(struct lexer *l, struct token *out, struct reason *why)
{
    for (size_t p = l->pos; p < l->len; p++) {
        size_t n = raw_tag(l, p, "endraw", true);
        size_t from = l->pos;

        if (n == 0)
            continue;
        *out = lex_make(l, TOK_DATA, from, strip_before(l, from, p, sign_at(l, p + 2), false));
        l->pos = p + n;
        l->state = LEX_ROOT;
        return ST_OK;
    }
    return fail(why, ST_INVALID, "the chat template has a raw block without an end (line %u)",
                lex_line_at(l, l->pos));
}

static enum status skip_comment(struct lexer *l, struct reason *why)
{
    for (size_t p = l->pos; p < l->len; p++) {
        size_t end = lex_block_end(l, p, "#}");

        if (end != 0) {
            l->pos = end;
            return ST_OK;
        }
    }
    return fail(why, ST_INVALID, "the chat template has a comment without an end (line %u)",
                lex_line_at(l, l->pos));
}

/* Goes past the tag's beginning and into its state. */
static enum status enter_tag(struct lexer *l, struct token *out, struct reason *why)
{
    size_t from = l->pos, raw = raw_tag(l, from, "raw", false);
    char kind = l->src[from + 1];

    l->pos += sign_at(l, from + 2) == ' ' ? 2 : 3;
    out->type = TOK_DATA;
    out->len = 0;
    if (kind == '#')
        return skip_comment(l, why);
    if (raw != 0) {
        l->pos = from + raw;
        l->state = LEX_RAW;
        return ST_OK;
    }
    *out = lex_make(l, kind == '{' ? TOK_PRINT_BEGIN : TOK_BLOCK_BEGIN, from, l->pos);
    l->state = kind == '{' ? LEX_PRINT : LEX_BLOCK;
    return ST_OK;
}

static enum status lex_root(struct lexer *l, struct token *out, struct reason *why)
{
    size_t from = l->pos, p = from, end;

    while (p < l->len && !lex_at(l, p, "{%") && !lex_at(l, p, "{{") && !lex_at(l, p, "{#"))
        p++;
    if (p == from && p < l->len)
        return enter_tag(l, out, why);
    end = p == l->len ? p : strip_before(l, from, p, sign_at(l, p + 2), l->src[p + 1] == '{');
    *out = lex_make(l, TOK_DATA, from, end);
    l->pos = p;
    return ST_OK;
}

enum status lex_next(struct lexer *l, struct token *out, struct reason *why)
{
    enum status s = ST_OK;

    do {
        if (l->state == LEX_PRINT || l->state == LEX_BLOCK)
            return lex_in_tag(l, out, why);
        if (l->state == LEX_RAW) {
            s = lex_raw(l, out, why);
        } else if (l->pos == l->len) {
            *out = lex_make(l, TOK_EOF, l->pos, l->pos);
            return ST_OK;
        } else {
            s = lex_root(l, out, why);
        }
    } while (s == ST_OK && out->type == TOK_DATA && out->len == 0);
    return s;
}
