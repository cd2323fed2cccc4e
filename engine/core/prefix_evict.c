/* Which cached pages go, and in which order. Every tenant has a heap of its leaves, and tenants are
 * in a heap by their oldest leaf; so the choice is O(log n), and one tenant's bound needs no look
 * at the others. */
#include <assert.h>
#include <string.h>

#include "engine/core/prefix_cache.h"
#include "engine/core/prefix_state.h"

/* Sorts a tenant below all that are within their share. Ticks never get there. */
#define WITHIN_SHARE (UINT64_C(1) << 63)

uint64_t prefix_key_hash(const struct cache_key *key)
{
    uint64_t hash;

    memcpy(&hash, key->bytes, sizeof hash);
    return hash;
}

static uint64_t tenant_hash(uint64_t tenant)
{
    /* Fibonacci hashing: ids that count up spread, and the high bits are the mixed ones. */
    return (tenant * UINT64_C(0x9E3779B97F4A7C15)) >> 32;
}

/* After every change of a tenant's leaves or of its number of entries. */
static void rank(struct prefix_cache *c, uint32_t tenant)
{
    struct prefix_tenant *t = &c->tenants[tenant];
    uint64_t key;

    if (t->ranked)
        lru_heap_remove(c->rank_nodes, &c->first_tenant, tenant);
    t->ranked = t->leaves != LRU_HEAP_NONE;
    if (!t->ranked)
        return;
    key = c->leaf_nodes[t->leaves].key | (t->n_entries > c->share ? 0 : WITHIN_SHARE);
    lru_heap_insert(c->rank_nodes, &c->first_tenant, tenant, key);
}

static uint32_t tenant_of(struct prefix_cache *c, uint64_t id)
{
    uint64_t hash = tenant_hash(id);
    uint32_t cursor = 0, tenant;

    while ((tenant = slot_map_next(&c->by_tenant, hash, &cursor)) != SLOT_MAP_NONE)
        if (c->tenants[tenant].id == id)
            return tenant;
    assert(c->n_free_tenants > 0);
    tenant = c->free_tenants[--c->n_free_tenants];
    c->tenants[tenant] = (struct prefix_tenant){.id = id, .leaves = LRU_HEAP_NONE};
    slot_map_insert(&c->by_tenant, hash, tenant);
    return tenant;
}

static void leaf_add(struct prefix_cache *c, uint32_t page)
{
    struct prefix_entry *e = &c->entries[page];

    lru_heap_insert(c->leaf_nodes, &c->tenants[e->tenant].leaves, page, e->last_use);
    rank(c, e->tenant);
}

static void leaf_remove(struct prefix_cache *c, uint32_t page)
{
    uint32_t tenant = c->entries[page].tenant;

    lru_heap_remove(c->leaf_nodes, &c->tenants[tenant].leaves, page);
    rank(c, tenant);
}

void prefix_entry_join(struct prefix_cache *c, uint32_t page, uint64_t tenant)
{
    struct prefix_entry *e = &c->entries[page];

    e->tenant = tenant_of(c, tenant);
    if (e->parent != PREFIX_NONE)
        c->entries[e->parent].n_children++;
    slot_map_insert(&c->by_key, prefix_key_hash(&e->key), page);
    c->tenants[e->tenant].n_entries++;
    c->stats.n_entries++;
    rank(c, e->tenant);
    pages_keep(c->pages, page);
}

void prefix_entry_wake(struct prefix_cache *c, uint32_t page)
{
    struct prefix_entry *e = &c->entries[page];

    c->tenants[e->tenant].n_cached--;
    if (e->n_children == 0)
        leaf_remove(c, page);
}

static void tenant_lost_entry(struct prefix_cache *c, uint32_t tenant)
{
    struct prefix_tenant *t = &c->tenants[tenant];

    t->n_entries--;
    rank(c, tenant);
    if (t->n_entries > 0)
        return;
    slot_map_remove(&c->by_tenant, tenant);
    c->free_tenants[c->n_free_tenants++] = tenant;
}

/* The entry, which has no children, is no more; returns its parent. */
static uint32_t forget(struct prefix_cache *c, uint32_t page)
{
    struct prefix_entry *e = &c->entries[page];
    uint32_t parent = e->parent;

    assert(e->n_children == 0);
    if (prefix_is_leaf(c, page))
        prefix_entry_wake(c, page);
    slot_map_remove(&c->by_key, page);
    pages_forget(c->pages, page);
    c->stats.n_entries--;
    tenant_lost_entry(c, e->tenant);
    if (parent == PREFIX_NONE)
        return parent;
    c->entries[parent].n_children--;
    if (prefix_is_leaf(c, parent))
        leaf_add(c, parent);
    return parent;
}

static bool is_above_bound(const struct prefix_cache *c, uint32_t tenant)
{
    return c->tenants[tenant].n_cached > c->share;
}

/* Also what lay below the page, where its tenant was waiting for that: see prefix_entry_rest. */
static void evict(struct prefix_cache *c, uint32_t page)
{
    do {
        page = forget(c, page);
        c->stats.evictions++;
    } while (page != PREFIX_NONE && prefix_is_leaf(c, page) &&
             is_above_bound(c, c->entries[page].tenant));
}

void prefix_entry_rest(struct prefix_cache *c, uint32_t page)
{
    struct prefix_entry *e = &c->entries[page];
    struct prefix_tenant *t = &c->tenants[e->tenant];

    e->last_use = ++c->tick;
    t->n_cached++;
    if (e->n_children == 0)
        leaf_add(c, page);
    /* Without leaves: its cached pages all lie before those of others who share its salt. They go
     * with those. */
    while (is_above_bound(c, e->tenant) && t->leaves != LRU_HEAP_NONE)
        evict(c, t->leaves);
}

bool prefix_cache_evict(struct prefix_cache *c, uint32_t n)
{
    if (n > pages_available(c->pages))
        return false;
    while (c->pages->n_free < n) {
        assert(c->first_tenant != LRU_HEAP_NONE);
        evict(c, c->tenants[c->first_tenant].leaves);
    }
    return true;
}

static bool is_of(const struct prefix_cache *c, uint32_t page, const uint8_t *adapter)
{
    const struct prefix_entry *e = &c->entries[page];

    if (!prefix_is_live(c, page))
        return false;
    return adapter == NULL ||
           (e->has_adapter && memcmp(e->adapter, adapter, sizeof e->adapter) == 0);
}

/* Those of one adapter, NULL: all. A chain has one adapter, so a page that must wait for its
 * children is reached again from the last of them. */
static void flush(struct prefix_cache *c, const uint8_t *adapter)
{
    for (uint32_t i = 0; i < c->pages->n_total; i++) {
        uint32_t page = i;

        while (page != PREFIX_NONE && is_of(c, page, adapter) && c->entries[page].n_children == 0)
            page = forget(c, page);
    }
}

void prefix_cache_flush(struct prefix_cache *c)
{
    flush(c, NULL);
}

void prefix_cache_flush_adapter(struct prefix_cache *c, const uint8_t *adapter)
{
    flush(c, adapter);
}
