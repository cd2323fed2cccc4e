#include "engine/core/prefix_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/prefix_state.h"

static enum status reserve_memory(struct prefix_cache *c, uint32_t n)
{
    enum status status = slot_map_init(&c->by_key, n);

    if (status == ST_OK)
        status = slot_map_init(&c->by_tenant, n);
    if (status != ST_OK)
        return status;
    c->entries = calloc(n, sizeof c->entries[0]);
    c->leaf_nodes = calloc(n, sizeof c->leaf_nodes[0]);
    c->tenants = calloc(n, sizeof c->tenants[0]);
    c->rank_nodes = calloc(n, sizeof c->rank_nodes[0]);
    c->free_tenants = calloc(n, sizeof c->free_tenants[0]);
    return c->entries != NULL && c->leaf_nodes != NULL && c->tenants != NULL &&
                   c->rank_nodes != NULL && c->free_tenants != NULL
               ? ST_OK
               : ST_NO_MEMORY;
}

static void release_memory(struct prefix_cache *c)
{
    slot_map_dispose(&c->by_key);
    slot_map_dispose(&c->by_tenant);
    free(c->entries);
    free(c->leaf_nodes);
    free(c->tenants);
    free(c->rank_nodes);
    free(c->free_tenants);
    free(c);
}

enum status prefix_cache_new(const struct prefix_cache_config *cfg, struct pages *pages,
                             struct prefix_cache **out)
{
    struct prefix_cache *c;
    enum status status;

    if (cfg->tenant_share_permille > 1000)
        return ST_INVALID;
    c = calloc(1, sizeof *c);
    if (c == NULL)
        return ST_NO_MEMORY;
    status = reserve_memory(c, pages->n_total);
    if (status != ST_OK) {
        release_memory(c);
        return status;
    }
    c->cfg = *cfg;
    if (c->cfg.key == NULL)
        c->cfg.key = cache_key_of;
    c->pages = pages;
    c->share = (uint32_t)((uint64_t)pages->n_total * cfg->tenant_share_permille / 1000);
    c->first_tenant = LRU_HEAP_NONE;
    c->n_free_tenants = pages->n_total;
    for (uint32_t i = 0; i < pages->n_total; i++)
        c->free_tenants[i] = pages->n_total - 1 - i;
    *out = c;
    return ST_OK;
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (c == NULL)
        return;
    prefix_cache_flush(c);
    release_memory(c);
}

void prefix_chain_init(struct prefix_chain *chain, const struct cache_domain *domain,
                       uint64_t tenant)
{
    *chain = (struct prefix_chain){.domain = domain, .tenant = tenant, .tail = PREFIX_NONE};
}

static void extend(struct prefix_chain *chain, uint32_t page)
{
    chain->tail = page;
    chain->n_pages++;
}

static void key_after(struct prefix_cache *c, const struct prefix_chain *chain, const int32_t *ids,
                      struct cache_key *out)
{
    const struct cache_key *parent =
        chain->tail == PREFIX_NONE ? NULL : &c->entries[chain->tail].key;

    c->cfg.key(chain->domain, parent, ids, out);
}

/* The entry with this key, PREFIX_NONE if there is none. The key alone is not believed: *same says
 * whether the entry holds these ids after the chain's tail. */
static uint32_t find(struct prefix_cache *c, const struct prefix_chain *chain,
                     const struct cache_key *key, const int32_t *ids, bool *same)
{
    uint64_t hash = prefix_key_hash(key);
    uint32_t cursor = 0, page;

    while ((page = slot_map_next(&c->by_key, hash, &cursor)) != SLOT_MAP_NONE) {
        const struct prefix_entry *e = &c->entries[page];

        if (memcmp(&e->key, key, sizeof *key) != 0)
            continue;
        *same = e->parent == chain->tail && memcmp(e->ids, ids, sizeof e->ids) == 0;
        if (!*same)
            c->stats.collisions++;
        return page;
    }
    return PREFIX_NONE;
}

static void share(struct prefix_cache *c, uint32_t page)
{
    bool was_cached = pages_state(c->pages, page) == PAGE_CACHED;

    pages_share(c->pages, page);
    if (was_cached)
        prefix_entry_wake(c, page);
}

uint32_t prefix_cache_match(struct prefix_cache *c, struct prefix_chain *chain,
                            const int32_t *tokens, uint32_t n_tokens_max, uint32_t *pages_out)
{
    uint32_t n_max = n_tokens_max / KV_PAGE_TOKENS;

    assert(chain->n_pages == 0 && !chain->ended);
    c->stats.query_tokens += n_tokens_max;
    while (chain->n_pages < n_max) {
        const int32_t *ids = tokens + (size_t)chain->n_pages * KV_PAGE_TOKENS;
        struct cache_key key;
        bool same = false;
        uint32_t page;

        key_after(c, chain, ids, &key);
        page = find(c, chain, &key, ids, &same);
        if (!same)
            break;
        share(c, page);
        pages_out[chain->n_pages] = page;
        extend(chain, page);
    }
    c->stats.hit_tokens += (uint64_t)chain->n_pages * KV_PAGE_TOKENS;
    return chain->n_pages;
}

static void add_entry(struct prefix_cache *c, const struct prefix_chain *chain,
                      const struct cache_key *key, const int32_t *ids, uint32_t page)
{
    struct prefix_entry *e = &c->entries[page];

    *e = (struct prefix_entry){
        .key = *key, .has_adapter = chain->domain->has_adapter, .parent = chain->tail};
    memcpy(e->ids, ids, sizeof e->ids);
    if (e->has_adapter)
        memcpy(e->adapter, chain->domain->adapter, sizeof e->adapter);
    prefix_entry_join(c, page, chain->tenant);
    c->stats.insertions++;
}

/* The content of *page is that of entry `held`. */
static enum prefix_insert adopt(struct prefix_cache *c, struct prefix_chain *chain, uint32_t held,
                                uint32_t *page)
{
    if (held == *page) { /* a fork of the sequence was here first */
        extend(chain, held);
        return PREFIX_INSERTED;
    }
    /* Others would go on with a page outside the tree while entries join below `held`, which could
     * lose its last reference before those. */
    if (c->pages->refs[*page] > 1) {
        chain->ended = true;
        return PREFIX_REFUSED;
    }
    share(c, held);
    pages_drop(c->pages, 1, page);
    *page = held;
    extend(chain, held);
    c->stats.adoptions++;
    return PREFIX_ADOPTED;
}

enum prefix_insert prefix_cache_insert(struct prefix_cache *c, struct prefix_chain *chain,
                                       const int32_t *ids, uint32_t *page)
{
    struct cache_key key;
    uint32_t held;
    bool same = false;

    assert(pages_state(c->pages, *page) == PAGE_USED);
    if (chain->tail != PREFIX_NONE && !prefix_is_live(c, chain->tail))
        chain->ended = true; /* flushed since */
    if (chain->ended)
        return PREFIX_REFUSED;
    key_after(c, chain, ids, &key);
    held = find(c, chain, &key, ids, &same);
    if (same)
        return adopt(c, chain, held, page);
    if (held != PREFIX_NONE) { /* a collision: the older entry stays */
        chain->ended = true;
        return PREFIX_REFUSED;
    }
    add_entry(c, chain, &key, ids, *page);
    extend(chain, *page);
    return PREFIX_INSERTED;
}

void prefix_cache_drop(struct prefix_cache *c, uint32_t n, const uint32_t *pages)
{
    /* From the last: a page rests before the page it follows, and is older to the eviction. */
    for (uint32_t i = n; i-- > 0;) {
        pages_drop(c->pages, 1, &pages[i]);
        if (pages_state(c->pages, pages[i]) == PAGE_CACHED)
            prefix_entry_rest(c, pages[i]);
    }
}

void prefix_cache_stats(const struct prefix_cache *c, struct prefix_cache_stats *out)
{
    *out = c->stats;
}
