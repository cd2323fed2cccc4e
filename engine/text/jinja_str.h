/* What filters share with the methods of strings. */
#ifndef ENGINE_TEXT_JINJA_STR_H
#define ENGINE_TEXT_JINJA_STR_H

#include "engine/text/jinja_run.h"

enum jinja_sides { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

/* `chars` NULL: white space. */
const struct jstr *jinja_strip(struct jinja *j, const struct jstr *s, const struct jstr *chars,
                               enum jinja_sides sides);
/* At most `max` times; -1: all. */
const struct jstr *jinja_replace(struct jinja *j, const struct jstr *s, const struct jstr *old,
                                 const struct jstr *with, int64_t max);
/* NULL after a failure. */
struct jseq *jinja_splitlines(struct jinja *j, const struct jstr *s, bool keep_ends);

#endif
