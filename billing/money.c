#include "billing/money.h"

#include <stdbool.h>
#include <stdio.h>

#define TOKENS_PER_PRICE 1000000
#define NANOS_PER_UNIT   1000000000

/* Three products below 2^126 and one below 2^83 sum to less than 2^128: nothing to check on the
 * way.
 */
typedef unsigned __int128 wide;

static bool is_price_valid(const struct price *p)
{
    return p->input_nanos >= 0 && p->cached_nanos >= 0 && p->output_nanos >= 0 &&
           p->request_nanos >= 0;
}

/* `round` is what makes the division round: half the divisor, or one less than all of it. The price
 * per request is due only when there is a token: a request that failed before its first is billed
 * nothing. */
static enum status cost(const struct price *p, int64_t input, int64_t cached, int64_t output,
                        uint32_t round, int64_t *out_nanos)
{
    wide sum = round;

    if (!is_price_valid(p) || input < 0 || cached < 0 || output < 0)
        return ST_INVALID;
    sum += (wide)p->input_nanos * (wide)input;
    sum += (wide)p->cached_nanos * (wide)cached;
    sum += (wide)p->output_nanos * (wide)output;
    if (input > 0 || cached > 0 || output > 0)
        sum += (wide)p->request_nanos * TOKENS_PER_PRICE;
    sum /= TOKENS_PER_PRICE;
    if (sum > INT64_MAX)
        return ST_TOO_LARGE;
    *out_nanos = (int64_t)sum;
    return ST_OK;
}

enum status money_cost(const struct price *p, int64_t input, int64_t cached, int64_t output,
                       int64_t *out_nanos)
{
    return cost(p, input, cached, output, TOKENS_PER_PRICE / 2, out_nanos);
}

enum status money_reserve(const struct price *p, int64_t input, int64_t output, int64_t *out_nanos)
{
    return cost(p, input, 0, output, TOKENS_PER_PRICE - 1, out_nanos);
}

void money_format(int64_t nanos, char out[MONEY_TEXT_BYTES])
{
    /* The magnitude of INT64_MIN has no int64. */
    uint64_t size = nanos < 0 ? 0 - (uint64_t)nanos : (uint64_t)nanos;
    int n = snprintf(out, MONEY_TEXT_BYTES, "%s%llu.%09llu", nanos < 0 ? "-" : "",
                     (unsigned long long)(size / NANOS_PER_UNIT),
                     (unsigned long long)(size % NANOS_PER_UNIT));

    for (int places = 9; places > 2 && out[n - 1] == '0'; places--)
        out[--n] = '\0';
}
