/* Money: int64 nano-units (1e-9) of the tenant's one currency. Prices are nano-units per million
 * tokens, so a row costs sum(tokens * price) / 1,000,000, rounded once, half up, on the summed
 * numerators; reservations round up. Pure; any thread. No floats. */
#ifndef BILLING_MONEY_H
#define BILLING_MONEY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct price {
    int64_t id; /* row of `prices`: fixed at admission, a later change never rewrites a bill */
    int64_t input_nanos, cached_nanos, output_nanos; /* per million tokens */
    int64_t request_nanos;                           /* per request */
    char currency[4];                                /* ISO 4217 */
};

/* ST_INVALID: a negative count; ST_TOO_LARGE: more than int64 holds. input counts the uncached
 * ones. */
MUST_CHECK enum status money_cost(const struct price *p, int64_t input, int64_t cached,
                                  int64_t output, int64_t *out_nanos);
MUST_CHECK enum status money_reserve(const struct price *p, int64_t input, int64_t output,
                                     int64_t *out_nanos);

#define MONEY_TEXT_BYTES 32
/* Decimal without exponent, at least 2 and at most 9 places: "0.000123450" -> "0.00012345". */
void money_format(int64_t nanos, char out[MONEY_TEXT_BYTES]);

#endif
