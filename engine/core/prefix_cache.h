/* The prefix cache: full KV pages found again by what they hold (cache_key.h), so that a prompt
 * which begins like an earlier one of the same tenant is not computed twice.
 *
 * A layer over the page pool, which the caller owns and which outlives it. An entry is a page, its
 * key, its token ids and the entry before it, so entries form trees. While sequences refer to a
 * page it can be hit and not evicted; without references it stays cached until its memory is
 * wanted. Nothing is allocated after prefix_cache_new. No clock: uses are counted. Belongs to the
 * scheduler's thread. docs/prefix-cache.md says what can hit and why.
 *
 * Life of a sequence:
 *
 *   prefix_chain_init(&q->chain, &q->domain, tenant);
 *   n = prefix_cache_match(c, &q->chain, tokens, n_prompt - 1, q->pages);    pages of the hit
 *   prefix_cache_evict(c, need) && pages_take(pages, need, q->pages + n);    pages to compute into
 *   ... whenever a step that filled page i = q->chain.n_pages was applied:
 *   prefix_cache_insert(c, &q->chain, tokens + i * KV_PAGE_TOKENS, &q->pages[i]);
 *   prefix_cache_drop(c, q->n_pages, q->pages);                              end, cancel,
 * preemption
 *
 * Its rules: a sequence holds a reference to every page of its chain, and drops all of them
 * together. So the page before a used page is used as well, cached pages are always tails of trees,
 * and every cached page can be evicted: pages_available() is what a sequence can really get. A
 * sequence is forked (pages_share of all its pages, a copy of its chain) after its full pages were
 * inserted; forked before, pages that both hold are cached only where they are the first of their
 * content. */
#ifndef ENGINE_CORE_PREFIX_CACHE_H
#define ENGINE_CORE_PREFIX_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/cache_key.h"
#include "engine/core/pages.h"

#define PREFIX_NONE UINT32_MAX

struct prefix_cache;

struct prefix_cache_config {
    /* Most cached (unreferenced) pages of one tenant, in thousandths of all pages, 0 to 1000. Above
     * it the tenant's own least recently used page goes at once. */
    uint32_t tenant_share_permille;
    /* NULL: cache_key_of. A test gives one that collides. */
    void (*key)(const struct cache_domain *d, const struct cache_key *parent, const int32_t *ids,
                struct cache_key *out);
};

/* How far a sequence's pages are in the cache: its first n_pages pages. The caller embeds it. */
struct prefix_chain {
    const struct cache_domain *domain; /* outlives the chain, unchanged */
    uint64_t tenant;                   /* whom its entries are charged to; not part of the key */
    uint32_t n_pages;
    uint32_t tail; /* physical page of the last of them; PREFIX_NONE: none */
    bool ended;    /* no more inserts: its entries were flushed, a key collided, or another page
                      holds the content of one that other sequences share */
};

enum prefix_insert {
    PREFIX_INSERTED, /* the page is in the cache, and the chain one page longer */
    PREFIX_ADOPTED,  /* likewise, but another page holds this content already: the caller's
                        reference moved from its own page to that one, and *page is changed */
    PREFIX_REFUSED   /* the chain has ended: the page stays the caller's, as it is */
};

struct prefix_cache_stats {
    uint64_t query_tokens; /* asked for by match */
    uint64_t hit_tokens;   /* found by match */
    uint64_t insertions;
    uint64_t adoptions;
    uint64_t evictions;  /* cached pages that gave way to others, by need or by a tenant's share */
    uint64_t collisions; /* one key, other content: each a miss */
    uint32_t n_entries;  /* pages that can be hit, used or cached */
};

/* ST_INVALID: a share above 1000, or no pages; ST_NO_MEMORY. The pool has no kept page. */
MUST_CHECK enum status prefix_cache_new(const struct prefix_cache_config *cfg, struct pages *pages,
                                        struct prefix_cache **out);
/* Cached pages become free, used ones stay used. NULL is fine. */
void prefix_cache_free(struct prefix_cache *c);

/* At the start of a sequence, and again when it was preempted and has dropped its pages. */
void prefix_chain_init(struct prefix_chain *chain, const struct cache_domain *domain,
                       uint64_t tenant);

/* The longest cached prefix of tokens (n_tokens_max), in full pages: takes a reference to each, and
 * writes them to pages_out (room for n_tokens_max / KV_PAGE_TOKENS). Returns their number. The
 * chain is fresh. The caller leaves out of n_tokens_max what it must compute itself: the last token
 * of a prompt, whose logits are wanted. */
uint32_t prefix_cache_match(struct prefix_cache *c, struct prefix_chain *chain,
                            const int32_t *tokens, uint32_t n_tokens_max, uint32_t *pages_out);

/* The page after the chain's last one is full with ids (KV_PAGE_TOKENS), and the step that filled
 * it was applied. The caller holds a reference to *page.
 *
 * Adoption may free the caller's page while a step in flight still reads it: devices run steps in
 * the order of submission, so that whoever takes the page next writes it afterwards. */
MUST_CHECK enum prefix_insert prefix_cache_insert(struct prefix_cache *c,
                                                  struct prefix_chain *chain, const int32_t *ids,
                                                  uint32_t *page);

/* Drops one reference to each of a sequence's n pages, in the order of their positions, cached or
 * not. Those in the cache without other references stay cached, the last page as the first to go.
 */
void prefix_cache_drop(struct prefix_cache *c, uint32_t n, const uint32_t *pages);

/* Evicts cached pages until n pages are free: false, and nothing evicted, when n is more than
 * pages_available. Pages of tenants with more entries than their share go first,
 * then the least recently used; of a chain always the suffix before the prefix. O(log n) a page. */
MUST_CHECK bool prefix_cache_evict(struct prefix_cache *c, uint32_t n);

/* Forgets every entry. Used pages stay used by those who hold them; their chains end. */
void prefix_cache_flush(struct prefix_cache *c);
/* Likewise the entries computed with this adapter (CACHE_HASH_BYTES): nobody will hit them any
 * more, so they needn't wait for their eviction. Looks at all entries once. */
void prefix_cache_flush_adapter(struct prefix_cache *c, const uint8_t *adapter);

void prefix_cache_stats(const struct prefix_cache *c, struct prefix_cache_stats *out);

/* NULL: all invariants hold; else the one that doesn't (static text). For tests: looks at
 * everything.
 */
const char *prefix_cache_check(const struct prefix_cache *c);

#endif
