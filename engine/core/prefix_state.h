/* The prefix cache's own state, shared by prefix_cache.c (what sequences do), prefix_evict.c (what
 * goes, and in which order) and prefix_check.c. Nobody else includes this. */
#ifndef ENGINE_CORE_PREFIX_STATE_H
#define ENGINE_CORE_PREFIX_STATE_H

#include "engine/core/lru_heap.h"
#include "engine/core/prefix_cache.h"
#include "engine/core/slot_map.h"

/* Of the page with the same number; live while the pool keeps that page. */
struct prefix_entry {
    struct cache_key key;
    int32_t ids[KV_PAGE_TOKENS];
    bool has_adapter;
    uint8_t adapter[CACHE_HASH_BYTES];
    uint32_t parent;     /* entry before it; PREFIX_NONE: first page */
    uint32_t n_children; /* live entries after it */
    uint32_t tenant;     /* index into tenants */
    uint64_t last_use;   /* tick at which it lost its last reference */
};

/* One that has entries. */
struct prefix_tenant {
    uint64_t id;
    uint32_t n_entries;
    uint32_t n_cached; /* of them without references */
    uint32_t leaves;   /* heap of its evictable pages by last_use: cached, no entry after them */
    bool ranked;       /* is in the heap of tenants: it has leaves */
};

struct prefix_cache {
    struct prefix_cache_config cfg;
    struct pages *pages;
    uint32_t share; /* tenant_share_permille in pages */
    uint64_t tick;
    struct prefix_cache_stats stats;

    struct prefix_entry *entries;     /* (n_pages) */
    struct lru_heap_node *leaf_nodes; /* (n_pages), of all tenants' heaps */
    struct slot_map by_key;           /* entries */
    struct prefix_tenant *tenants;    /* (n_pages): each has an entry, so there are no more */
    struct lru_heap_node *rank_nodes; /* (n_pages) */
    uint32_t first_tenant;            /* heap: above their share first, then by oldest leaf */
    struct slot_map by_tenant;        /* tenants */
    uint32_t *free_tenants;           /* stack */
    uint32_t n_free_tenants;
};

static inline bool prefix_is_live(const struct prefix_cache *c, uint32_t page)
{
    return c->pages->kept[page];
}

static inline bool prefix_is_leaf(const struct prefix_cache *c, uint32_t page)
{
    return prefix_is_live(c, page) && c->entries[page].n_children == 0 &&
           pages_state(c->pages, page) == PAGE_CACHED;
}

/* Position of a key in by_key: its first bytes are as good a hash as any. Whoever wants crowded
 * slots must know a tenant's salt. */
uint64_t prefix_key_hash(const struct cache_key *key);

/* A used page gets its entry: its content is kept. The entry's fields but tenant are set. */
void prefix_entry_join(struct prefix_cache *c, uint32_t page, uint64_t tenant);
/* A cached page is so no more: it was shared again, or is about to be forgotten. */
void prefix_entry_wake(struct prefix_cache *c, uint32_t page);
/* A page with an entry lost its last reference. May evict pages of its tenant. */
void prefix_entry_rest(struct prefix_cache *c, uint32_t page);

#endif
