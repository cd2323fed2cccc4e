/* Python's case mappings and character classes, by utf8proc's tables. Each mapped character keeps
 * the origin of the one it came from. */
#include "engine/text/jinja_eval.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "engine/text/jinja_lex.h"

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

/* Characters that have a case, as str.istitle and str.title see them. */
static bool is_cased(uint32_t cp)
{
    utf8proc_category_t c = category(cp);

    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           utf8proc_islower((utf8proc_int32_t)cp) || utf8proc_isupper((utf8proc_int32_t)cp);
}

#define EXPANSION_MAX 4

/* Characters whose mapping is longer than one have no simple one; their full case folding, mapped,
 * is it. Returns the number of code points written. */
static int expand(uint32_t cp, utf8proc_int32_t out[EXPANSION_MAX])
{
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, out, EXPANSION_MAX, UTF8PROC_CASEFOLD, NULL);

    return n > 1 && n <= EXPANSION_MAX ? (int)n : 0;
}

static void add_upper(struct jtext *t, uint32_t cp, bool origin, bool title)
{
    utf8proc_int32_t full[EXPANSION_MAX], c = (utf8proc_int32_t)cp;
    utf8proc_int32_t up = title ? utf8proc_totitle(c) : utf8proc_toupper(c);
    /* Sharp s has a simple capital in newer tables, but its mapping stays "SS". */
    bool is_long = (up == c && category(cp) == UTF8PROC_CATEGORY_LL) || cp == 0xDF;
    int n = is_long ? expand(cp, full) : 0;
    bool titled = false;

    if (n == 0)
        jt_add_cp(t, (uint32_t)up, origin);
    for (int i = 0; i < n; i++) {
        /* A title's capital is the first letter among them that has one. */
        up = title && titled ? full[i] : utf8proc_toupper(full[i]);
        titled = titled || up != full[i];
        jt_add_cp(t, (uint32_t)up, origin);
    }
}

/* Characters that a word's end is looked for through: Unicode's Case_Ignorable. */
static bool is_case_ignorable(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return cp == '\'' || cp == '.' || cp == ':' || cp == 0xB7 || cp == 0x2018 || cp == 0x2019 ||
               cp == 0x2024 || cp == 0x2027;
    }
}

/* Whether the nearest character in [from, pos) that counts is a letter with a case. */
static bool cased_before(const struct jstr *s, size_t from, size_t pos)
{
    while (pos > from) {
        uint32_t cp = 0;

        do
            pos--;
        while (pos > from && (s->data[pos] & 0xC0) == 0x80);
        utf8_decode(s->data + pos, s->len - pos, &cp);
        if (!is_case_ignorable(cp))
            return is_cased(cp);
    }
    return false;
}

static bool cased_after(const struct jstr *s, size_t pos)
{
    while (pos < s->len) {
        uint32_t cp = 0;

        pos += (size_t)utf8_decode(s->data + pos, s->len - pos, &cp);
        if (!is_case_ignorable(cp))
            return is_cased(cp);
    }
    return false;
}

/* `from` is where the lowered stretch begins, `pos` where the character stands: a capital sigma at
 * a word's end has its own small letter. */
static void add_lower(struct jtext *t, const struct jstr *s, size_t from, size_t pos, uint32_t cp)
{
    size_t end;
    bool origin = js_origin(s, pos, &end);

    if (cp == 0x130) { /* I with a dot: the one capital with a longer small letter */
        jt_add_cp(t, 'i', origin);
        jt_add_cp(t, 0x307, origin);
    } else if (cp == 0x3A3 && cased_before(s, from, pos) && !cased_after(s, pos + 2)) {
        jt_add_cp(t, 0x3C2, origin);
    } else {
        jt_add_cp(t, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), origin);
    }
}

const struct jstr *jinja_case(struct jinja *j, const struct jstr *s, enum jcase to)
{
    struct jtext t;
    bool in_word = false;

    jt_init(&t, j);
    for (size_t pos = 0; pos < s->len && jinja_charge(j, pos % 8 == 0);) {
        uint32_t cp = 0;
        size_t end;
        int n = utf8_decode(s->data + pos, s->len - pos, &cp);
        bool origin = js_origin(s, pos, &end);

        if (to == CASE_UPPER || (to == CASE_TITLE && !in_word) || (to == CASE_CAPITAL && pos == 0))
            add_upper(&t, cp, origin, to != CASE_UPPER);
        else
            add_lower(&t, s, 0, pos, cp);
        in_word = is_cased(cp);
        pos += (size_t)n;
    }
    return jt_finish(&t);
}

static bool begins_words(uint32_t cp)
{
    return lex_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

const struct jstr *jinja_title_filter(struct jinja *j, const struct jstr *s)
{
    struct jtext t;
    bool at_start = true;
    size_t word = 0; /* after the first character of the word */

    jt_init(&t, j);
    for (size_t pos = 0; pos < s->len && jinja_charge(j, pos % 8 == 0);) {
        uint32_t cp = 0;
        size_t end;
        int n = utf8_decode(s->data + pos, s->len - pos, &cp);
        bool origin = js_origin(s, pos, &end);

        if (at_start) {
            add_upper(&t, cp, origin, false);
            word = pos + (size_t)n;
        } else {
            add_lower(&t, s, word, pos, cp);
        }
        at_start = begins_words(cp);
        pos += (size_t)n;
    }
    return jt_finish(&t);
}

bool jinja_has_case(const struct jstr *s, bool upper)
{
    bool any = false;

    for (size_t pos = 0; pos < s->len;) {
        uint32_t cp = 0;
        bool is_upper, is_lower;

        pos += (size_t)utf8_decode(s->data + pos, s->len - pos, &cp);
        is_upper = utf8proc_isupper((utf8proc_int32_t)cp) != 0;
        is_lower = utf8proc_islower((utf8proc_int32_t)cp) != 0;
        if (category(cp) == UTF8PROC_CATEGORY_LT || (upper ? is_lower : is_upper))
            return false;
        any = any || (upper ? is_upper : is_lower);
    }
    return any;
}

static bool is_class(uint32_t cp, enum jclass c)
{
    utf8proc_category_t cat = category(cp);
    bool alpha = cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
    bool digit = cat == UTF8PROC_CATEGORY_ND;

    if (c == CLASS_SPACE)
        return lex_is_space(cp);
    if (c == CLASS_ALPHA)
        return alpha;
    if (c == CLASS_DIGIT) /* superscripts are digits, fractions are not */
        return digit || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 || cp == 0x2070 ||
               (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089);
    return alpha || digit || cat == UTF8PROC_CATEGORY_NL || cat == UTF8PROC_CATEGORY_NO;
}

bool jinja_all_of(const struct jstr *s, enum jclass c)
{
    for (size_t pos = 0; pos < s->len;) {
        uint32_t cp = 0;

        pos += (size_t)utf8_decode(s->data + pos, s->len - pos, &cp);
        if (!is_class(cp, c))
            return false;
    }
    return s->len != 0;
}
