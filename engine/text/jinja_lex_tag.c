/* Inside of a tag: names, numbers, strings, operators, and where the tag ends. */
#include <string.h>

#include "base/size.h"
#include "engine/text/jinja_lex_parts.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

/* Past digits with single underscores between them, of which `set` says which are digits. */
static size_t digits(const struct lexer *l, size_t p, const char *set)
{
    while (p < l->len) {
        if (l->src[p] != '\0' && strchr(set, l->src[p]) != NULL)
            p++;
        else if (l->src[p] == '_' && p + 1 < l->len && l->src[p + 1] != '\0' &&
                 strchr(set, l->src[p + 1]) != NULL)
            p += 2;
        else
            break;
    }
    return p;
}

#define DECIMAL "0123456789"

/* End of the exponent at p; p when there is none. */
static size_t exponent(const struct lexer *l, size_t p)
{
    size_t q = p + 1;

    if (!lex_at(l, p, "e") && !lex_at(l, p, "E"))
        return p;
    if (lex_at(l, q, "+") || lex_at(l, q, "-"))
        q++;
    return q < l->len && is_digit(l->src[q]) ? digits(l, q, DECIMAL) : p;
}

static size_t integer_end(const struct lexer *l, size_t p)
{
    static const struct {
        const char *prefix, *set;
    } bases[] = {{"0b", "01"},
                 {"0B", "01"},
                 {"0o", "01234567"},
                 {"0O", "01234567"},
                 {"0x", DECIMAL "abcdefABCDEF"},
                 {"0X", DECIMAL "abcdefABCDEF"}};

    for (size_t i = 0; i < COUNT_OF(bases); i++) {
        size_t end = lex_at(l, p, bases[i].prefix) ? digits(l, p + 2, bases[i].set) : 0;

        if (end > p + 2)
            return end;
    }
    return digits(l, p, l->src[p] == '0' ? "0" : DECIMAL);
}

static struct token lex_number(struct lexer *l)
{
    size_t from = l->pos, whole = digits(l, from, DECIMAL), end = whole;

    if (from == 0 || l->src[from - 1] != '.') {
        if (lex_at(l, whole, ".") && whole + 1 < l->len && is_digit(l->src[whole + 1]))
            end = digits(l, whole + 1, DECIMAL);
        end = exponent(l, end);
    }
    if (end != whole) {
        l->pos = end;
        return lex_make(l, TOK_FLOAT, from, end);
    }
    l->pos = integer_end(l, from);
    return lex_make(l, TOK_INT, from, l->pos);
}

static enum status lex_string(struct lexer *l, struct token *out, struct reason *why)
{
    char quote = l->src[l->pos];
    size_t from = l->pos + 1;

    for (size_t p = from; p < l->len; p++) {
        if (l->src[p] == '\\') {
            p++;
        } else if (l->src[p] == quote) {
            *out = lex_make(l, TOK_STRING, from, p);
            l->pos = p + 1;
            return ST_OK;
        }
    }
    return fail(why, ST_INVALID, "the chat template has a string without an end (line %u)",
                lex_line_at(l, l->pos));
}

static const struct {
    const char *text;
    enum token_type type;
} operators[] = {
    {"//", TOK_FLOORDIV}, {"**", TOK_POW},   {"==", TOK_EQ},      {"!=", TOK_NE},
    {"<=", TOK_LE},       {">=", TOK_GE},    {"+", TOK_ADD},      {"-", TOK_SUB},
    {"*", TOK_MUL},       {"/", TOK_DIV},    {"%", TOK_MOD},      {"~", TOK_TILDE},
    {"<", TOK_LT},        {">", TOK_GT},     {"=", TOK_ASSIGN},   {".", TOK_DOT},
    {":", TOK_COLON},     {"|", TOK_PIPE},   {",", TOK_COMMA},    {";", TOK_SEMICOLON},
    {"(", TOK_LPAREN},    {")", TOK_RPAREN}, {"[", TOK_LBRACKET}, {"]", TOK_RBRACKET},
    {"{", TOK_LBRACE},    {"}", TOK_RBRACE},
};

/* Keeps count of brackets, because "}}" and "%}" end a tag only outside of them. */
static enum status balance(struct lexer *l, char c, struct reason *why)
{
    char closer = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : '\0';

    if (closer != '\0') {
        if (l->n_brackets == LEX_BRACKETS_MAX)
            return fail(why, ST_TOO_LARGE, "the chat template nests too deeply (line %u)",
                        lex_line_at(l, l->pos));
        l->brackets[l->n_brackets++] = closer;
        return ST_OK;
    }
    if (c != ')' && c != ']' && c != '}')
        return ST_OK;
    if (l->n_brackets == 0 || l->brackets[l->n_brackets - 1] != c)
        return fail(why, ST_INVALID, "the chat template has an unexpected '%c' (line %u)", c,
                    lex_line_at(l, l->pos));
    l->n_brackets--;
    return ST_OK;
}

static enum status lex_operator(struct lexer *l, struct token *out, struct reason *why)
{
    for (size_t i = 0; i < COUNT_OF(operators); i++) {
        size_t n = strlen(operators[i].text);
        enum status s;

        if (!lex_at(l, l->pos, operators[i].text))
            continue;
        s = n == 1 ? balance(l, l->src[l->pos], why) : ST_OK;
        *out = lex_make(l, operators[i].type, l->pos, l->pos + n);
        l->pos += n;
        return s;
    }
    if ((unsigned char)l->src[l->pos] >= 0x80)
        return fail(why, ST_UNSUPPORTED, "the chat template has a name that is not ASCII (line %u)",
                    lex_line_at(l, l->pos));
    return fail(why, ST_INVALID, "the chat template has an unexpected character (line %u)",
                lex_line_at(l, l->pos));
}

/* Leaves the tag when its end is at pos. */
static bool lex_tag_end(struct lexer *l, struct token *out)
{
    bool is_print = l->state == LEX_PRINT;
    size_t end = 0;

    if (l->n_brackets != 0)
        return false;
    if (!is_print)
        end = lex_block_end(l, l->pos, "%}");
    else if (lex_at(l, l->pos, "-}}"))
        end = lex_skip_space(l, l->pos + 3);
    else if (lex_at(l, l->pos, "}}"))
        end = l->pos + 2;
    if (end == 0)
        return false;
    *out = lex_make(l, is_print ? TOK_PRINT_END : TOK_BLOCK_END, l->pos, l->pos + 2);
    l->pos = end;
    l->state = LEX_ROOT;
    return true;
}

enum status lex_in_tag(struct lexer *l, struct token *out, struct reason *why)
{
    size_t from;

    /* The end comes before white space: "-%}" takes what follows it. */
    l->pos = lex_skip_space(l, l->pos);
    from = l->pos;
    if (from == l->len)
        return fail(why, ST_INVALID, "the chat template ends inside a tag (line %u)",
                    lex_line_at(l, from));
    if (lex_tag_end(l, out))
        return ST_OK;
    if (is_digit(l->src[from])) {
        *out = lex_number(l);
        return ST_OK;
    }
    if (is_name(l->src[from])) {
        while (l->pos < l->len && is_name(l->src[l->pos]))
            l->pos++;
        *out = lex_make(l, TOK_NAME, from, l->pos);
        return ST_OK;
    }
    if (l->src[from] == '"' || l->src[from] == '\'')
        return lex_string(l, out, why);
    return lex_operator(l, out, why);
}
