/* Where a report goes: a descriptor, written in large pieces. Internal to billing/; blocking. */
#ifndef BILLING_REPORT_OUT_H
#define BILLING_REPORT_OUT_H

#include <stdbool.h>

#include "base/buf.h"
#include "billing/billing.h"

struct report_out {
    int fd;
    struct buf buf; /* append here, then report_out_flush */
};

/* Writes out what has gathered; without `all` only when it is worth a write. */
MUST_CHECK enum status report_out_flush(struct report_out *o, bool all, struct reason *why);

/* Appends a field for RFC 4180: quoted where needed. `is_text`: what a spreadsheet would take for a
 * formula (it begins with = + - @, tab or carriage return) gets a ' in front. NULL: empty. */
void report_put_csv(struct buf *b, const char *s, bool is_text);

/* Begins a read-only transaction over one snapshot, without the statement timeout of short queries,
 * and turns the report's bounds into the parameters $1 (tenant's id, 0: all), $2 and $3 (Unix
 * seconds) of its queries. ST_NOT_FOUND: no such tenant; ST_INVALID: bounds. The caller commits or
 * rolls back.
 */
#define REPORT_PARAMS 3
struct report_params {
    char text[REPORT_PARAMS][24];
    const char *values[REPORT_PARAMS];
};
MUST_CHECK enum status report_begin(struct pg *pg, const struct usage_report *r,
                                    struct report_params *out, struct reason *why);

#endif
