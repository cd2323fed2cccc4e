/* The invariants of the prefix cache, each looked at afresh, without what the cache remembers where
 * it can be counted. */
#include <stddef.h>

#include "engine/core/prefix_cache.h"
#include "engine/core/prefix_state.h"

static const char *check_pool(const struct pages *p)
{
    uint32_t n[3] = {0};

    for (uint32_t i = 0; i < p->n_total; i++)
        n[pages_state(p, i)]++;
    if (n[PAGE_FREE] != p->n_free || n[PAGE_CACHED] != p->n_cached)
        return "the pool's counts are those of its pages";
    for (uint32_t i = 0; i < p->n_free; i++)
        if (pages_state(p, p->free[i]) != PAGE_FREE || p->kept[p->free[i]])
            return "pages on the free list are free";
    return NULL;
}

static bool is_indexed(const struct prefix_cache *c, uint32_t page)
{
    uint64_t hash = prefix_key_hash(&c->entries[page].key);
    uint32_t cursor = 0, found, n = 0;

    while ((found = slot_map_next(&c->by_key, hash, &cursor)) != SLOT_MAP_NONE)
        n += found == page;
    return n == 1;
}

static uint32_t children_of(const struct prefix_cache *c, uint32_t page)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->pages->n_total; i++)
        n += prefix_is_live(c, i) && c->entries[i].parent == page;
    return n;
}

/* Follows the links from a node to its heap's root, which must be this one. */
static bool is_in_heap(const struct lru_heap_node *nodes, uint32_t root, uint32_t node,
                       uint32_t n_nodes)
{
    uint64_t key = nodes[node].key;

    for (uint32_t steps = 0; steps < n_nodes; steps++) {
        uint32_t prev = nodes[node].prev;

        if (prev == LRU_HEAP_NONE)
            return node == root;
        if (nodes[prev].child == node) {
            if (nodes[prev].key >= key)
                return false;
            key = nodes[prev].key;
        } else if (nodes[prev].next != node) {
            return false;
        }
        node = prev;
    }
    return false;
}

static const char *check_entry(const struct prefix_cache *c, uint32_t page)
{
    const struct prefix_entry *e = &c->entries[page];
    const struct prefix_tenant *t = &c->tenants[e->tenant];

    if (!is_indexed(c, page))
        return "an entry is once in the index";
    if (e->n_children != children_of(c, page))
        return "an entry counts its children";
    if (e->parent != PREFIX_NONE && !prefix_is_live(c, e->parent))
        return "an entry's parent is live";
    if (e->parent != PREFIX_NONE && c->pages->refs[page] > 0 && c->pages->refs[e->parent] == 0)
        return "the page before a used page is used";
    if (prefix_is_leaf(c, page) &&
        (!is_in_heap(c->leaf_nodes, t->leaves, page, c->pages->n_total) ||
         c->leaf_nodes[page].key != e->last_use))
        return "a cached page without children is evictable, by its last use";
    return NULL;
}

static uint32_t heap_size(const struct lru_heap_node *nodes, uint32_t root)
{
    uint32_t n = 0, node = root;

    while (node != LRU_HEAP_NONE) { /* depth first: down, else right, else up and right */
        n++;
        if (nodes[node].child != LRU_HEAP_NONE) {
            node = nodes[node].child;
            continue;
        }
        while (node != LRU_HEAP_NONE && nodes[node].next == LRU_HEAP_NONE) {
            while (nodes[node].prev != LRU_HEAP_NONE && nodes[nodes[node].prev].child != node)
                node = nodes[node].prev;
            node = nodes[node].prev;
        }
        if (node != LRU_HEAP_NONE)
            node = nodes[node].next;
    }
    return n;
}

static const char *check_tenant(const struct prefix_cache *c, uint32_t tenant)
{
    const struct prefix_tenant *t = &c->tenants[tenant];
    uint32_t n_entries = 0, n_cached = 0, n_leaves = 0;

    for (uint32_t i = 0; i < c->pages->n_total; i++) {
        if (!prefix_is_live(c, i) || c->entries[i].tenant != tenant)
            continue;
        n_entries++;
        n_cached += pages_state(c->pages, i) == PAGE_CACHED;
        n_leaves += prefix_is_leaf(c, i);
    }
    if (n_entries != t->n_entries || n_cached != t->n_cached)
        return "a tenant counts its entries";
    if (heap_size(c->leaf_nodes, t->leaves) != n_leaves)
        return "a tenant's heap holds its evictable pages and nothing else";
    if (t->ranked != (n_leaves > 0) ||
        (t->ranked && !is_in_heap(c->rank_nodes, c->first_tenant, tenant, c->pages->n_total)))
        return "a tenant with evictable pages is ranked";
    if (n_cached > c->share && n_leaves > 0)
        return "a tenant's cached pages are within its share";
    return NULL;
}

const char *prefix_cache_check(const struct prefix_cache *c)
{
    uint32_t n_live = 0;
    const char *broken = check_pool(c->pages);

    for (uint32_t i = 0; broken == NULL && i < c->pages->n_total; i++) {
        if (!prefix_is_live(c, i))
            continue;
        n_live++;
        broken = check_entry(c, i);
        if (broken == NULL)
            broken = check_tenant(c, c->entries[i].tenant);
    }
    if (broken == NULL && n_live != c->stats.n_entries)
        return "the cache counts its entries";
    return broken;
}
