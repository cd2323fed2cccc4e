/* The poster's thread: rows from the journal into Postgres in batches, and the price list from
 * there. A batch is one transaction and may be sent again: a row that is there already stays as it
 * is. A row that Postgres refuses for its own sake is set aside as a dead letter, and those behind
 * it go on. While Postgres is away, one batch and the row source's memory wait; the rest is on the
 * journal's disk. */
#ifndef BILLING_POSTER_H
#define BILLING_POSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "billing/journal.h"
#include "billing/prices.h"

struct poster;

/* `conninfo` is copied; journal and prices outlive the poster. */
MUST_CHECK enum status poster_start(const char *conninfo, int64_t post_ms, struct journal *journal,
                                    struct prices *prices, struct poster **out);
/* Posts what it can within deadline_ms, then stops. */
void poster_stop(struct poster *p, int64_t deadline_ms);

/* Any thread. */
bool poster_is_ok(const struct poster *p);    /* the last exchange with Postgres worked */
bool poster_is_ready(const struct poster *p); /* prices loaded, replayed rows posted */
uint64_t poster_posted(const struct poster *p);
uint64_t poster_set_aside(const struct poster *p);

#endif
