/* The pool of physical KV pages: a free list and a reference count for each page, so that sequences
 * can share pages. Pure bookkeeping; the device holds the memory. Belongs to the scheduler's
 * thread.
 *
 * A page is in one of three states:
 *
 *   free    nobody refers to it, its content is nothing
 *   used    refs > 0
 *   cached  refs == 0, but its content is kept: share makes it used again, forget makes it free
 *
 * take: free -> used. The last drop: used -> cached where the content is kept, else -> free. */
#ifndef ENGINE_CORE_PAGES_H
#define ENGINE_CORE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum page_state { PAGE_FREE, PAGE_USED, PAGE_CACHED };

struct pages {
    uint32_t n_total;
    uint32_t n_free;
    uint32_t n_cached;
    uint32_t *free; /* stack: the page freed last is warm and is used first */
    uint32_t *refs; /* per page */
    bool *kept;     /* per page: the prefix cache names its content */
};

MUST_CHECK enum status pages_init(struct pages *p, uint32_t n_pages);
void pages_dispose(struct pages *p);

/* Takes n free pages, one reference each, into out; false, and nothing taken, when fewer are free.
 */
MUST_CHECK bool pages_take(struct pages *p, uint32_t n, uint32_t *out);
/* One more reference to a used or cached page. The prefix cache alone shares cached ones. */
void pages_share(struct pages *p, uint32_t page);
/* One reference less for each of n pages. Where a prefix cache is over the pool, sequences drop
 * through prefix_cache_drop, which learns so what became evictable. */
void pages_drop(struct pages *p, uint32_t n, const uint32_t *which);

/* The prefix cache's: a used page's content is kept from now on. */
void pages_keep(struct pages *p, uint32_t page);
/* The prefix cache's: a kept page's content is so no more; a cached page is free. */
void pages_forget(struct pages *p, uint32_t page);

enum page_state pages_state(const struct pages *p, uint32_t page);

/* Pages that somebody refers to: cached ones can be had at any time. */
static inline uint32_t pages_used(const struct pages *p)
{
    return p->n_total - p->n_free - p->n_cached;
}

/* Most pages that pages_take can get once the cache has given way (prefix_cache_evict). */
static inline uint32_t pages_available(const struct pages *p)
{
    return p->n_free + p->n_cached;
}

#endif
