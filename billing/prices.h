/* The price list in memory. One writer (the poster's thread); any thread asks. It also holds the
 * prices of the future, so that one takes effect at its moment and not at the next refresh. */
#ifndef BILLING_PRICES_H
#define BILLING_PRICES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "billing/money.h"
#include "store/pg.h"

struct price_row {
    char model[96];
    int64_t effective_from_us;
    struct price price;
};

struct prices {
    pthread_mutex_t lock;   /* held for a look-up or an exchange of pointers, never while working */
    struct price_row *rows; /* by model, newest first */
    size_t n;
    bool is_loaded;
};

void prices_init(struct prices *p);
void prices_dispose(struct prices *p);
/* Replaces the list with the database's; on failure the old one stays. */
MUST_CHECK enum status prices_load(struct prices *p, struct pg *pg, struct reason *why);
/* Takes over `rows` (heap, sorted as above). */
void prices_replace(struct prices *p, struct price_row *rows, size_t n);
/* The model's own price, else that of '*'. ST_NOT_FOUND: neither; ST_UNAVAILABLE: nothing was
 * loaded yet. */
MUST_CHECK enum status prices_find(struct prices *p, const char *model, int64_t now_us,
                                   struct price *out);

#endif
