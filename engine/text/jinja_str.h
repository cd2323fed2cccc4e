/* What filters and the methods of strings share. */
#ifndef ENGINE_TEXT_JINJA_STR_H
#define ENGINE_TEXT_JINJA_STR_H

#include "engine/text/jinja_run.h"

enum jinja_sides { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* The argument as a string, as an integer (`missing` when not given); fails when it is none. */
const struct jstr *jinja_string_arg(struct jinja *j, struct jval v);
int64_t jinja_int_arg(struct jinja *j, struct jval v, int64_t missing);
/* a: sep, maxsplit. */
struct jval jinja_str_split(struct jinja *j, struct jval self, const struct jval *a);
struct jval jinja_str_rsplit(struct jinja *j, struct jval self, const struct jval *a);
/* a: sep. A tuple of three. */
struct jval jinja_str_partition(struct jinja *j, struct jval self, const struct jval *a);
struct jval jinja_str_rpartition(struct jinja *j, struct jval self, const struct jval *a);
struct jval jinja_str_format(struct jinja *j, struct jval self, const struct jargs *args);
/* `chars` NULL: white space. */
const struct jstr *jinja_strip(struct jinja *j, const struct jstr *s, const struct jstr *chars,
                               enum jinja_sides sides);
/* At most `max` times; -1: all. */
const struct jstr *jinja_replace(struct jinja *j, const struct jstr *s, const struct jstr *old,
                                 const struct jstr *with, int64_t max);
/* NULL after a failure. */
struct jseq *jinja_splitlines(struct jinja *j, const struct jstr *s, bool keep_ends);

#endif
