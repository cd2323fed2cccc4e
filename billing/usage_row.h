/* A usage row: an admission and its final record, joined; what is posted to Postgres. Pure; any
 * thread. */
#ifndef BILLING_USAGE_ROW_H
#define BILLING_USAGE_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "billing/billing.h"

/* Bounds that make every row postable: no stamp past the year 9999, no count or price whose product
 * could overflow (migrations/0002_usage.sql holds prices to the same bound). */
#define USAGE_TOKENS_MAX      INT64_C(0x7FFFFFFF)
#define USAGE_PRICE_MAX_NANOS INT64_C(1000000000000000)
#define USAGE_TIME_MAX_US     (INT64_C(253402300800) * 1000000 - 1)

struct usage_row {
    uint64_t seq; /* the journal's, of the final record: rows are posted in this order */
    struct billing_admission admission;
    struct billing_final final;
};

/* Bounds, currency and texts (terminated, UTF-8, no control characters). */
bool usage_admission_is_valid(const struct billing_admission *a);
bool usage_final_is_valid(const struct billing_final *f);

/* Makes text from outside storable: bytes that are not UTF-8 and control characters become '?'. */
void usage_clean_text(char *s);

/* "completed", ...: static storage, the rows' `outcome`. */
const char *usage_outcome_name(enum billing_outcome o);

/* Both parts are valid. Never fails within the bounds above. */
int64_t usage_row_cost(const struct usage_row *row);
/* Appends the row as a JSON object whose members are the columns that INSERT in usage_insert.c
 * names. */
void usage_row_put_json(struct buf *b, const struct usage_row *row);

/* "2025-01-31T23:59:59.000001Z" */
#define USAGE_TIME_TEXT_BYTES 32
void usage_format_time(int64_t unix_us, char out[USAGE_TIME_TEXT_BYTES]);

#endif
