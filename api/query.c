#include "api/query.h"

#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool query_decode(const char *s, size_t len, bool plus_is_space, char *out)
{
    for (size_t i = 0; i < len; i++) {
        char c = s[i];

        if (c == '+' && plus_is_space)
            c = ' ';
        if (c == '%') {
            int hi = i + 2 < len ? hex_digit(s[i + 1]) : -1;
            int lo = i + 2 < len ? hex_digit(s[i + 2]) : -1;

            if (hi == -1 || lo == -1)
                return false;
            c = (char)(hi * 16 + lo);
            i += 2;
        }
        if (c == '\0')
            return false;
        *out++ = c;
    }
    *out = '\0';
    return true;
}

/* Appends one decoded text with its NUL. */
static bool append(struct query *q, const char *s, size_t len)
{
    if (!query_decode(s, len, true, q->text + q->len))
        return false;
    q->len += strlen(q->text + q->len) + 1;
    return true;
}

bool query_init(struct query *q, const char *s, size_t len)
{
    const char *end = s + len;

    q->len = 0;
    q->at = 0;
    /* A pair without '=' gains a NUL of its own: at worst one byte per byte. */
    if (len > QUERY_BYTES_MAX / 2)
        return false;
    while (s < end) {
        const char *amp = memchr(s, '&', (size_t)(end - s));
        const char *stop = amp != NULL ? amp : end;
        const char *eq = memchr(s, '=', (size_t)(stop - s));
        const char *name_end = eq != NULL ? eq : stop;
        const char *value = eq != NULL ? eq + 1 : stop;

        if (stop > s &&
            (!append(q, s, (size_t)(name_end - s)) || !append(q, value, (size_t)(stop - value))))
            return false;
        s = stop + 1;
    }
    return true;
}

bool query_next(struct query *q, const char **name, const char **value)
{
    char *n = q->text + q->at;
    size_t n_len;

    if (q->at >= q->len)
        return false;
    n_len = strlen(n);
    *value = n + n_len + 1;
    q->at += n_len + 1 + strlen(*value) + 1;
    if (n_len > 2 && strcmp(n + n_len - 2, "[]") == 0)
        n[n_len - 2] = '\0';
    *name = n;
    return true;
}

bool query_int(const char *value, long long *out)
{
    size_t len = strlen(value);
    long long v = 0;

    if (len == 0 || len > 15 || strspn(value, "0123456789") != len)
        return false;
    for (; *value != '\0'; value++)
        v = 10 * v + (*value - '0');
    *out = v;
    return true;
}
