/* Usage rows into their table: what the poster and the retry of dead letters share. Blocking; the
 * connection's thread. Internal to billing/. */
#ifndef BILLING_USAGE_INSERT_H
#define BILLING_USAGE_INSERT_H

#include <stdbool.h>

#include "store/pg.h"

/* `rows` is a JSON array of usage_row_put_json's objects. All or none of them; those that are there
 * already stay as they are. Their months' partitions exist. */
MUST_CHECK enum status usage_insert(struct pg *pg, const char *rows, struct reason *why);

/* After a statement on rows ended with s: the fault is one of theirs (their values, a constraint, a
 * trigger's veto), so the same rows are refused again however often they are sent. False: nothing
 * that a row could help (no server, no such table, no right to it). */
bool usage_is_refused(const struct pg *pg, enum status s);

#endif
