/* Asynchronous writes on their way through the journal, in the order they came. Linked through the
 * writes themselves; the owner's thread. */
#ifndef BILLING_WRITE_LIST_H
#define BILLING_WRITE_LIST_H

#include "billing/billing.h"

struct write_list {
    struct billing_write *head, **tail;
};
void write_list_init(struct write_list *l);
void write_list_add(struct write_list *l, struct billing_write *w);
/* Sends w back to its loop; any thread. */
void write_answer(struct billing_write *w, enum status s);

#endif
