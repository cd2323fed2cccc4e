/* Items by attribute and in order: what the filters on sequences share. */
#ifndef ENGINE_TEXT_JINJA_SORT_H
#define ENGINE_TEXT_JINJA_SORT_H

#include "engine/text/jinja_run.h"

/* Attribute path "a.b.0" of an item, or the item itself without one (missing or none). */
struct jval jinja_attribute_of(struct jinja *j, struct jval item, struct jval path);
/* The key of sort, unique, min, max and dictsort: strings compare without case unless asked. */
struct jval jinja_fold(struct jinja *j, struct jval v, bool case_sensitive);
/* a: reverse, case_sensitive, attribute. */
struct jval jinja_filter_sort(struct jinja *j, struct jval self, const struct jval *a);
/* a: case_sensitive, by, reverse. */
struct jval jinja_filter_dictsort(struct jinja *j, struct jval self, const struct jval *a);

#endif
