/* Where the poster puts a row that Postgres refuses; what administrators do with it is in
 * billing.h. Blocking; the connection's thread. Internal to billing/. */
#ifndef BILLING_DEAD_LETTER_H
#define BILLING_DEAD_LETTER_H

#include "base/buf.h"
#include "base/id.h"
#include "store/pg.h"

/* Keeps the row's JSON with the reason of its refusal. A row that is kept already stays as it is.
 */
MUST_CHECK enum status dead_letter_put(struct pg *pg, const struct id *request,
                                       const struct buf *json, const char *reason,
                                       struct reason *why);

#endif
