/* Requests that are admitted and have no durable final record yet, by id. Belongs to one thread. */
#ifndef BILLING_LIVE_TABLE_H
#define BILLING_LIVE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "billing/billing.h"
#include "billing/journal_format.h"

struct live {
    struct live *next; /* in its bucket */
    struct billing_admission admission;
    struct journal_progress progress; /* at_us is the admission's until the first progress */
    bool has_final;                   /* `final` waits for the disk */
    struct billing_final final;
    uint64_t final_seq;
};

struct live_table {
    struct live **buckets;
    size_t n_buckets; /* a power of two, or 0 */
    size_t count;
};

void live_table_init(struct live_table *t);
void live_table_dispose(struct live_table *t);
struct live *live_table_find(const struct live_table *t, const struct id *id);
/* The entry of this admission, new or the one that was there; NULL: no memory. */
struct live *live_table_add(struct live_table *t, const struct billing_admission *a);
/* Frees the entry. */
void live_table_remove(struct live_table *t, struct live *e);
/* The entry after `e` in a fixed order (NULL: the first); NULL at the end. An entry may be removed
 * once its successor is known. */
struct live *live_table_next(const struct live_table *t, const struct live *e);

#endif
