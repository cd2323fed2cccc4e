/* Sequences over a page pool and its prefix cache, as the scheduler runs them, for unit tests. A
 * prompt is a text with a letter per page: "AB" and "AC" share their first page. */
#ifndef TESTS_LIB_PREFIX_RIG_H
#define TESTS_LIB_PREFIX_RIG_H

#include "engine/core/prefix_cache.h"

#define PREFIX_RIG_PAGES_MAX 16 /* of a sequence */

struct prefix_rig {
    struct pages pages;
    struct prefix_cache *cache;
};

struct prefix_user {
    struct cache_domain domain;
    struct prefix_chain chain;
    uint32_t n_pages, pages[PREFIX_RIG_PAGES_MAX];
};

/* key NULL: the real one. */
void prefix_rig_open(struct prefix_rig *r, uint32_t n_pages, uint32_t share_permille,
                     void (*key)(const struct cache_domain *, const struct cache_key *,
                                 const int32_t *, struct cache_key *));
/* All is dropped: every page must be free or cached, and the invariants hold. */
void prefix_rig_close(struct prefix_rig *r);

/* Another tenant is another salt. */
struct cache_domain prefix_rig_domain(uint64_t tenant);
void prefix_rig_ids(char letter, int32_t ids[KV_PAGE_TOKENS]);

/* Takes what is cached of the prompt; returns the number of pages. */
uint32_t prefix_rig_match(struct prefix_rig *r, struct prefix_user *u, uint64_t tenant,
                          const struct cache_domain *domain, const char *prompt);
/* Computes one page more. */
enum prefix_insert prefix_rig_compute(struct prefix_rig *r, struct prefix_user *u, char letter);
/* Match, and the rest computed, of a prompt of a tenant without adapter. */
uint32_t prefix_rig_run(struct prefix_rig *r, struct prefix_user *u, uint64_t tenant,
                        const char *prompt);
/* The same with another domain. */
uint32_t prefix_rig_run_in(struct prefix_rig *r, struct prefix_user *u, uint64_t tenant,
                           const struct cache_domain *domain, const char *prompt);
void prefix_rig_end(struct prefix_rig *r, struct prefix_user *u);
/* Run and end: what it leaves is cached. Returns the number of pages hit. */
uint32_t prefix_rig_leave(struct prefix_rig *r, uint64_t tenant, const char *prompt);
/* Pages that the prompt would hit now; nothing changes but ages. */
uint32_t prefix_rig_probe(struct prefix_rig *r, uint64_t tenant, const char *prompt);

#endif
