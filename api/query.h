/* The query string of a URL: names and values in order, percent-decoded. Pure. */
#ifndef API_QUERY_H
#define API_QUERY_H

#include <stdbool.h>
#include <stddef.h>

#define QUERY_BYTES_MAX 4096

struct query {
    char text[QUERY_BYTES_MAX + 1]; /* decoded names and values, one after another */
    size_t len, at;
};

/* False: too long, a broken escape, or a NUL. `s` is what follows the '?' (may be empty). */
bool query_init(struct query *q, const char *s, size_t len);
/* The next pair; both NUL-terminated and valid as long as *q. "[]" at a name's end is cut off, so
 * that group_by and group_by[] are one. False: no more. */
bool query_next(struct query *q, const char **name, const char **value);
/* A whole decimal number of at most 15 digits. */
bool query_int(const char *value, long long *out);
/* Percent-decodes; false as above. `out` has room for len + 1. */
bool query_decode(const char *s, size_t len, bool plus_is_space, char *out);

#endif
