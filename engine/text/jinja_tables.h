/* What the interpreter knows by name. NULL (or false): unknown, and the parser refuses it.
 * Immutable tables; any thread. */
#ifndef ENGINE_TEXT_JINJA_TABLES_H
#define ENGINE_TEXT_JINJA_TABLES_H

#include "engine/text/jinja_value.h"

const struct jfunc *jinja_text_filter(const char *name); /* jinja_filters.c */
const struct jfunc *jinja_seq_filter(const char *name);  /* jinja_seq.c */
const struct jfunc *jinja_filter(const char *name);      /* either */
const struct jfunc *jinja_test(const char *name);        /* jinja_tests.c */
const struct jfunc *jinja_global(const char *name);      /* jinja_globals.c */

/* Whether some type has a method of this name that can be called. */
bool jinja_has_method(const char *name);
/* The method of v's type; *unsafe: the sandbox forbids it. NULL: v has none of this name. */
const struct jfunc *jinja_method(struct jval v, const char *name, bool *unsafe);
const struct jfunc *jinja_str_method(const char *name); /* jinja_str.c */

/* Looks `name` up in a table. */
const struct jfunc *jinja_lookup(const struct jfunc *table, size_t n, const char *name);
/* Calls a table's function: binds arguments to parameters, fails as Python would. `what` is the
 * kind, for messages. */
struct jval jinja_invoke(struct jinja *j, const struct jfunc *f, struct jval self,
                         const struct jargs *args);

#endif
