/* UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length in bytes (1-4) of the valid character at s; 0 when the bytes are invalid; -1 when they are
 * a valid but unfinished beginning. *cp receives the code point on success (may be NULL). */
int utf8_decode(const char *s, size_t len, uint32_t *cp);
/* Writes cp (a valid code point) to out[4]; returns its length. */
size_t utf8_encode(uint32_t cp, char *out);
bool utf8_is_valid(const char *s, size_t len);

#endif
