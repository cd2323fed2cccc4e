/* The pool of physical KV pages: a free list and a reference count for each page, so that sequences
 * can share pages. Pure bookkeeping; the device holds the memory. Belongs to the scheduler's
 * thread. */
#ifndef ENGINE_CORE_PAGES_H
#define ENGINE_CORE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct pages {
    uint32_t n_total;
    uint32_t n_free;
    uint32_t *free; /* stack: the page freed last is warm and is used first */
    uint32_t *refs; /* per page; 0: free */
};

MUST_CHECK enum status pages_init(struct pages *p, uint32_t n_pages);
void pages_dispose(struct pages *p);

/* Takes n free pages, one reference each, into out; false, and nothing taken, when fewer are free.
 */
MUST_CHECK bool pages_take(struct pages *p, uint32_t n, uint32_t *out);
/* One more reference to a page in use. */
void pages_share(struct pages *p, uint32_t page);
/* One reference less for each of n pages; a page without references is free. */
void pages_drop(struct pages *p, uint32_t n, const uint32_t *which);

static inline uint32_t pages_used(const struct pages *p)
{
    return p->n_total - p->n_free;
}

#endif
