#include "base/utf8.h"

/* Number of bytes that the lead byte announces and the range of its second byte (RFC 3629, table in
 * section 4); 0 for a byte that can't lead. */
static int lead_length(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80)
        return 1;
    if (c >= 0xC2 && c <= 0xDF)
        return 2;
    if (c >= 0xE0 && c <= 0xEF) {
        if (c == 0xE0)
            *lo = 0xA0;
        if (c == 0xED)
            *hi = 0x9F;
        return 3;
    }
    if (c >= 0xF0 && c <= 0xF4) {
        if (c == 0xF0)
            *lo = 0x90;
        if (c == 0xF4)
            *hi = 0x8F;
        return 4;
    }
    return 0;
}

int utf8_decode(const char *s, size_t len, uint32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lo, hi;
    uint32_t v;
    int n;

    if (len == 0)
        return -1;
    n = lead_length(p[0], &lo, &hi);
    if (n == 0)
        return 0;
    v = n == 1 ? p[0] : p[0] & (0xFFu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((size_t)i >= len)
            return -1;
        if (p[i] < lo || p[i] > hi)
            return 0;
        lo = 0x80;
        hi = 0xBF;
        v = v << 6 | (p[i] & 0x3Fu);
    }
    if (cp != NULL)
        *cp = v;
    return n;
}

size_t utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_is_valid(const char *s, size_t len)
{
    while (len > 0) {
        int n = utf8_decode(s, len, NULL);

        if (n <= 0)
            return false;
        s += n;
        len -= (size_t)n;
    }
    return true;
}
