/* Names from outside (a file, a peer) in messages for people: nothing that steers a terminal. */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H

#include <stddef.h>

/* Fills out[cap] with as much as fits, NUL-terminated, '?' for whatever is no plain ASCII. */
static inline void printable(const char *s, size_t len, char *out, size_t cap)
{
    size_t n = len < cap - 1 ? len : cap - 1;

    for (size_t i = 0; i < n; i++)
        out[i] = s[i] >= 0x20 && s[i] < 0x7F ? s[i] : '?';
    out[n] = 0;
}

#endif
