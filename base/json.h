/* JSON. Reading: jansson behind our own checks, because its depth limit is a fixed 2048 and it
 * accepts more than we do. Writing: a small appender for the token path, which allocates nothing
 * beyond its buffer. RFC 8259. Any thread (a document belongs to one). */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* Deepest nesting of arrays and objects that a document from outside may have. Chat requests with
 * tool schemas stay under 20. */
#define JSON_DEPTH_MAX 64

/* Parses a document whose top is an object or array. Refuses invalid UTF-8, NUL (raw or \u0000),
 * duplicate keys, trailing bytes, nesting over `depth_max` and numbers that are too large. The
 * reason names line and column, never the content. The caller owns *out (json_decref). */
MUST_CHECK enum status json_parse(const char *text, size_t len, int depth_max, json_t **out,
                                  struct reason *why);
/* The same, but an integer outside int64 and a number outside double arrive as a real of that sign
 * and the size JSON_HUGE, for a reader that refuses it where it means something. */
#define JSON_HUGE 1e308
MUST_CHECK enum status json_parse_huge(const char *text, size_t len, int depth_max, json_t **out,
                                       struct reason *why);
/* A number of that size is in it, at any depth (that json_parse let pass). */
bool json_has_huge(const json_t *v);

/* Appends s as a quoted JSON string (control characters escaped; bytes must be valid UTF-8). */
void json_put_string(struct buf *b, const char *s, size_t len);
/* The same without its quotes, for a string that is made of parts. */
void json_put_chars(struct buf *b, const char *s, size_t len);
/* What json_put_chars would append. */
size_t json_chars_len(const char *s, size_t len);
void json_put_cstr(struct buf *b, const char *s);
void json_put_int(struct buf *b, int64_t v);

#endif
