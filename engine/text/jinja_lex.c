#include "engine/text/jinja_lex.h"

#include <string.h>

#include "base/size.h"
#include "base/utf8.h"

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

static bool at(const struct lexer *l, size_t pos, const char *what)
{
    size_t n = strlen(what);

    return pos <= l->len && l->len - pos >= n && memcmp(l->src + pos, what, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t pos)
{
    size_t n;

    while ((n = lex_space(l->src + pos, l->len - pos)) != 0)
        pos += n;
    return pos;
}

static unsigned line_at(struct lexer *l, size_t pos)
{
    for (; l->line_pos < pos; l->line_pos++)
        l->line += l->src[l->line_pos] == '\n';
    return l->line;
}

static struct token make(struct lexer *l, enum token_type type, size_t from, size_t to)
{
    return (struct token){
        .type = type, .line = line_at(l, from), .text = l->src + from, .len = to - from};
}

/* Position after a tag's end at pos ("%}", "-%}" with the space after it, "+%}" or "%}" with the
 * one newline that trim_blocks takes), or 0 when there is none. */
static size_t block_end(const struct lexer *l, size_t pos, const char *end)
{
    if (l->src[pos] == '-' && at(l, pos + 1, end))
        return skip_space(l, pos + 3);
    if (l->src[pos] == '+' && at(l, pos + 1, end))
        return pos + 3;
    if (at(l, pos, end))
        return pos + 2 + (at(l, pos + 2, "\n") ? 1 : 0);
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

    if (!at(l, pos, "{%"))
        return 0;
    if (at(l, p, "-") || at(l, p, "+"))
        p++;
    p = skip_space(l, p);
    if (!at(l, p, word))
        return 0;
    p = skip_space(l, p + strlen(word));
    if (p >= l->len || (!trim && l->src[p] == '+'))
        return 0;
    end = block_end(l, p, "%}");
    if (end != 0 && !trim && l->src[p] != '-')
        end = p + 2; /* the newline after {% raw %} stays */
    return end == 0 ? 0 : end - pos;
}

static char sign_at(const struct lexer *l, size_t pos)
{
    return at(l, pos, "-") ? '-' : at(l, pos, "+") ? '+' : ' ';
}

/* Inside {% raw %}: everything up to its end is data. */
static enum status lex_raw(struct lexer *l, struct token *out, struct reason *why)
{
    for (size_t p = l->pos; p < l->len; p++) {
        size_t n = raw_tag(l, p, "endraw", true);
        size_t from = l->pos;

        if (n == 0)
            continue;
        *out = make(l, TOK_DATA, from, strip_before(l, from, p, sign_at(l, p + 2), false));
        l->pos = p + n;
        l->state = LEX_ROOT;
        return ST_OK;
    }
    return fail(why, ST_INVALID, "the chat template has a raw block without an end (line %u)",
                line_at(l, l->pos));
}

static enum status skip_comment(struct lexer *l, struct reason *why)
{
    for (size_t p = l->pos; p < l->len; p++) {
        size_t end = block_end(l, p, "#}");

        if (end != 0) {
            l->pos = end;
            return ST_OK;
        }
    }
    return fail(why, ST_INVALID, "the chat template has a comment without an end (line %u)",
                line_at(l, l->pos));
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
    *out = make(l, kind == '{' ? TOK_PRINT_BEGIN : TOK_BLOCK_BEGIN, from, l->pos);
    l->state = kind == '{' ? LEX_PRINT : LEX_BLOCK;
    return ST_OK;
}

static enum status lex_root(struct lexer *l, struct token *out, struct reason *why)
{
    size_t from = l->pos, p = from, end;

    while (p < l->len && !at(l, p, "{%") && !at(l, p, "{{") && !at(l, p, "{#"))
        p++;
    if (p == from && p < l->len)
        return enter_tag(l, out, why);
    end = p == l->len ? p : strip_before(l, from, p, sign_at(l, p + 2), l->src[p + 1] == '{');
    *out = make(l, TOK_DATA, from, end);
    l->pos = p;
    return ST_OK;
}

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

    if (!at(l, p, "e") && !at(l, p, "E"))
        return p;
    if (at(l, q, "+") || at(l, q, "-"))
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
        size_t end = at(l, p, bases[i].prefix) ? digits(l, p + 2, bases[i].set) : 0;

        if (end > p + 2)
            return end;
    }
    return digits(l, p, l->src[p] == '0' ? "0" : DECIMAL);
}

static struct token lex_number(struct lexer *l)
{
    size_t from = l->pos, whole = digits(l, from, DECIMAL), end = whole;

    if (from == 0 || l->src[from - 1] != '.') {
        if (at(l, whole, ".") && whole + 1 < l->len && is_digit(l->src[whole + 1]))
            end = digits(l, whole + 1, DECIMAL);
        end = exponent(l, end);
    }
    if (end != whole) {
        l->pos = end;
        return make(l, TOK_FLOAT, from, end);
    }
    l->pos = integer_end(l, from);
    return make(l, TOK_INT, from, l->pos);
}

static enum status lex_string(struct lexer *l, struct token *out, struct reason *why)
{
    char quote = l->src[l->pos];
    size_t from = l->pos + 1;

    for (size_t p = from; p < l->len; p++) {
        if (l->src[p] == '\\') {
            p++;
        } else if (l->src[p] == quote) {
            *out = make(l, TOK_STRING, from, p);
            l->pos = p + 1;
            return ST_OK;
        }
    }
    return fail(why, ST_INVALID, "the chat template has a string without an end (line %u)",
                line_at(l, l->pos));
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
                        line_at(l, l->pos));
        l->brackets[l->n_brackets++] = closer;
        return ST_OK;
    }
    if (c != ')' && c != ']' && c != '}')
        return ST_OK;
    if (l->n_brackets == 0 || l->brackets[l->n_brackets - 1] != c)
        return fail(why, ST_INVALID, "the chat template has an unexpected '%c' (line %u)", c,
                    line_at(l, l->pos));
    l->n_brackets--;
    return ST_OK;
}

static enum status lex_operator(struct lexer *l, struct token *out, struct reason *why)
{
    for (size_t i = 0; i < COUNT_OF(operators); i++) {
        size_t n = strlen(operators[i].text);
        enum status s;

        if (!at(l, l->pos, operators[i].text))
            continue;
        s = n == 1 ? balance(l, l->src[l->pos], why) : ST_OK;
        *out = make(l, operators[i].type, l->pos, l->pos + n);
        l->pos += n;
        return s;
    }
    if ((unsigned char)l->src[l->pos] >= 0x80)
        return fail(why, ST_UNSUPPORTED, "the chat template has a name that is not ASCII (line %u)",
                    line_at(l, l->pos));
    return fail(why, ST_INVALID, "the chat template has an unexpected character (line %u)",
                line_at(l, l->pos));
}

/* Leaves the tag when its end is at pos. */
static bool lex_tag_end(struct lexer *l, struct token *out)
{
    bool is_print = l->state == LEX_PRINT;
    size_t end = 0;

    if (l->n_brackets != 0)
        return false;
    if (!is_print)
        end = block_end(l, l->pos, "%}");
    else if (at(l, l->pos, "-}}"))
        end = skip_space(l, l->pos + 3);
    else if (at(l, l->pos, "}}"))
        end = l->pos + 2;
    if (end == 0)
        return false;
    *out = make(l, is_print ? TOK_PRINT_END : TOK_BLOCK_END, l->pos, l->pos + 2);
    l->pos = end;
    l->state = LEX_ROOT;
    return true;
}

static enum status lex_in_tag(struct lexer *l, struct token *out, struct reason *why)
{
    size_t from;

    /* The end comes before white space: "-%}" takes what follows it. */
    l->pos = skip_space(l, l->pos);
    from = l->pos;
    if (from == l->len)
        return fail(why, ST_INVALID, "the chat template ends inside a tag (line %u)",
                    line_at(l, from));
    if (lex_tag_end(l, out))
        return ST_OK;
    if (is_digit(l->src[from])) {
        *out = lex_number(l);
        return ST_OK;
    }
    if (is_name(l->src[from])) {
        while (l->pos < l->len && is_name(l->src[l->pos]))
            l->pos++;
        *out = make(l, TOK_NAME, from, l->pos);
        return ST_OK;
    }
    if (l->src[from] == '"' || l->src[from] == '\'')
        return lex_string(l, out, why);
    return lex_operator(l, out, why);
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
            *out = make(l, TOK_EOF, l->pos, l->pos);
            return ST_OK;
        } else {
            s = lex_root(l, out, why);
        }
    } while (s == ST_OK && out->type == TOK_DATA && out->len == 0);
    return s;
}
