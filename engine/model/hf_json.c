#include "engine/model/hf_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

/* No number of the formats has more digits than a double needs. */
#define NUMBER_BYTES_MAX 64

void hf_json_init(struct hf_json *j, const char *text, size_t len)
{
    *j = (struct hf_json){.text = text, .len = len};
}

static bool fault(struct hf_json *j)
{
    j->failed = true;
    return false;
}

static void skip_space(struct hf_json *j)
{
    while (j->pos < j->len) {
        char c = j->text[j->pos];

        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
        j->pos++;
    }
}

char hf_json_peek(struct hf_json *j)
{
    skip_space(j);
    return !j->failed && j->pos < j->len ? j->text[j->pos] : 0;
}

static bool take(struct hf_json *j, char c)
{
    if (hf_json_peek(j) != c)
        return fault(j);
    j->pos++;
    return true;
}

static bool enter(struct hf_json *j, char open)
{
    if (!take(j, open) || j->depth == JSON_DEPTH_MAX)
        return fault(j);
    j->depth++;
    j->first = true;
    return true;
}

/* True: another element follows, after its comma. False: the container was left, or a fault. */
static bool next(struct hf_json *j, char close)
{
    if (hf_json_peek(j) == close) {
        j->pos++;
        j->depth--;
        j->first = false;
        return false;
    }
    if (!j->first && !take(j, ','))
        return false;
    j->first = false;
    return !j->failed;
}

bool hf_json_enter_object(struct hf_json *j)
{
    return enter(j, '{');
}

bool hf_json_member(struct hf_json *j, struct hf_span *key)
{
    return next(j, '}') && hf_json_string(j, key) && take(j, ':');
}

bool hf_json_enter_array(struct hf_json *j)
{
    return enter(j, '[');
}

/* A value must follow, which its reader sees: also after the comma of "[1,]". */
bool hf_json_element(struct hf_json *j)
{
    return next(j, ']');
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Four hex digits; -1: they are not. */
static int32_t hex4(const char *s, const char *end)
{
    int32_t v = 0;

    if (end - s < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int d = hex_value(s[i]);

        if (d == -1)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* Past the escape at pos (a backslash); false: no escape of JSON. */
static bool skip_escape(struct hf_json *j)
{
    char c = j->pos + 1 < j->len ? j->text[j->pos + 1] : 0;

    if (c == 'u') {
        if (hex4(j->text + j->pos + 2, j->text + j->len) == -1)
            return false;
        j->pos += 6;
        return true;
    }
    if (c == 0 || strchr("\"\\/bfnrt", c) == NULL)
        return false;
    j->pos += 2;
    return true;
}

bool hf_json_string(struct hf_json *j, struct hf_span *raw)
{
    size_t start;

    if (!take(j, '"'))
        return false;
    start = j->pos;
    while (j->pos < j->len && j->text[j->pos] != '"') {
        if ((unsigned char)j->text[j->pos] < 0x20)
            return fault(j);
        if (j->text[j->pos] != '\\')
            j->pos++;
        else if (!skip_escape(j))
            return fault(j);
    }
    if (j->pos == j->len)
        return fault(j);
    *raw = (struct hf_span){j->text + start, j->pos - start};
    j->pos++;
    return true;
}

static size_t skip_digits(struct hf_json *j)
{
    size_t start = j->pos;

    while (j->pos < j->len && j->text[j->pos] >= '0' && j->text[j->pos] <= '9')
        j->pos++;
    return j->pos - start;
}

static bool at(const struct hf_json *j, char a, char b)
{
    return j->pos < j->len && (j->text[j->pos] == a || j->text[j->pos] == b);
}

/* The grammar's number: no leading zero, digits on both sides of the point. */
static bool number_span(struct hf_json *j, struct hf_span *out)
{
    size_t start, digits;
    bool zero;

    (void)hf_json_peek(j);
    start = j->pos;
    j->pos += at(j, '-', '-');
    zero = at(j, '0', '0');
    digits = skip_digits(j);
    if (j->failed || digits == 0 || (zero && digits > 1))
        return fault(j);
    if (at(j, '.', '.')) {
        j->pos++;
        if (skip_digits(j) == 0)
            return fault(j);
    }
    if (at(j, 'e', 'E')) {
        j->pos++;
        j->pos += at(j, '+', '-');
        if (skip_digits(j) == 0)
            return fault(j);
    }
    *out = (struct hf_span){j->text + start, j->pos - start};
    return true;
}

bool hf_json_u64(struct hf_json *j, uint64_t *out)
{
    struct hf_span s;
    uint64_t v = 0;

    if (!number_span(j, &s))
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.text[i] < '0' || s.text[i] > '9' || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.text[i] - '0'), &v))
            return fault(j);
    *out = v;
    return true;
}

bool hf_json_number(struct hf_json *j, double *out)
{
    char copy[NUMBER_BYTES_MAX];
    struct hf_span s;

    if (!number_span(j, &s))
        return false;
    if (s.len >= sizeof copy)
        return fault(j);
    memcpy(copy, s.text, s.len);
    copy[s.len] = 0;
    *out = strtod(copy, NULL);
    return true;
}

static bool take_word(struct hf_json *j, const char *word)
{
    size_t n = strlen(word);

    (void)hf_json_peek(j);
    if (j->failed || j->len - j->pos < n || memcmp(j->text + j->pos, word, n) != 0)
        return fault(j);
    j->pos += n;
    return true;
}

bool hf_json_bool(struct hf_json *j, bool *out)
{
    bool v = hf_json_peek(j) == 't';

    if (!take_word(j, v ? "true" : "false"))
        return false;
    *out = v;
    return true;
}

bool hf_json_null(struct hf_json *j)
{
    return hf_json_peek(j) == 'n' && take_word(j, "null");
}

/* Recursion is JSON_DEPTH_MAX deep: enter refuses more. */
static bool skip_value(struct hf_json *j)
{
    struct hf_span s;
    bool b;

    switch (hf_json_peek(j)) {
    case '{':
        if (hf_json_enter_object(j))
            while (hf_json_member(j, &s) && skip_value(j))
                ;
        return !j->failed;
    case '[':
        if (hf_json_enter_array(j))
            while (hf_json_element(j) && skip_value(j))
                ;
        return !j->failed;
    case '"':
        return hf_json_string(j, &s);
    case 't':
    case 'f':
        return hf_json_bool(j, &b);
    case 'n':
        return hf_json_null(j);
    default:
        return number_span(j, &s);
    }
}

bool hf_json_skip(struct hf_json *j, struct hf_span *value)
{
    size_t start;

    (void)hf_json_peek(j);
    start = j->pos;
    if (!skip_value(j))
        return false;
    if (value != NULL)
        *value = (struct hf_span){j->text + start, j->pos - start};
    return true;
}

bool hf_json_end(struct hf_json *j)
{
    skip_space(j);
    return !j->failed && j->pos == j->len;
}

/* The code point of the \u escape at s, and of its second half where it has one; 0: bad, or U+0000.
 * *used is the bytes read. */
static uint32_t decode_u(const char *s, const char *end, size_t *used)
{
    int32_t high = hex4(s + 2, end), low;

    *used = 6;
    if (high < 0xD800 || high > 0xDFFF)
        return high > 0 ? (uint32_t)high : 0;
    if (high > 0xDBFF || end - s < 12 || s[6] != '\\' || s[7] != 'u')
        return 0;
    low = hex4(s + 8, end);
    if (low < 0xDC00 || low > 0xDFFF)
        return 0;
    *used = 12;
    return 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
}

static char short_escape(char c)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    const char *p = strchr(from, c);

    return p != NULL ? to[p - from] : c;
}

/* The escapes were checked by hf_json_string; a decoded string is never longer than its spelling.
 */
static bool decode(struct hf_span raw, char *out, size_t *len)
{
    const char *s = raw.text, *end = raw.text + raw.len;
    size_t n = 0;

    while (s < end) {
        size_t used = 2;
        uint32_t cp;

        if (*s != '\\') {
            out[n++] = *s++;
            continue;
        }
        if (s[1] == 'u') {
            cp = decode_u(s, end, &used);
            if (cp == 0)
                return false;
            n += utf8_encode(cp, out + n);
        } else {
            out[n++] = short_escape(s[1]);
        }
        s += used;
    }
    *len = n;
    return true;
}

bool hf_json_text(struct arena *a, struct hf_span raw, struct hf_span *out)
{
    size_t len = 0;
    char *copy;

    if (memchr(raw.text, '\\', raw.len) == NULL) {
        *out = raw;
        return memchr(raw.text, 0, raw.len) == NULL;
    }
    copy = arena_alloc(a, raw.len + 1);
    if (copy == NULL || !decode(raw, copy, &len))
        return false;
    *out = (struct hf_span){copy, len};
    return true;
}

bool hf_span_is(struct hf_span s, const char *text)
{
    return s.text != NULL && s.len == strlen(text) && memcmp(s.text, text, s.len) == 0;
}

enum status hf_json_fail(const struct hf_json *j, const char *what, struct reason *why)
{
    return fail(why, ST_CORRUPT, "%.100s is not as it should be, or no valid JSON, near byte %zu",
                what, j->pos);
}
