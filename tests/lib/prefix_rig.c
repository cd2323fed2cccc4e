#include "tests/lib/prefix_rig.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

void prefix_rig_open(struct prefix_rig *r, uint32_t n_pages, uint32_t share_permille,
                     void (*key)(const struct cache_domain *, const struct cache_key *,
                                 const int32_t *, struct cache_key *))
{
    struct prefix_cache_config cfg = {.tenant_share_permille = share_permille, .key = key};

    assert_int_equal(pages_init(&r->pages, n_pages), ST_OK);
    assert_int_equal(prefix_cache_new(&cfg, &r->pages, &r->cache), ST_OK);
}

void prefix_rig_close(struct prefix_rig *r)
{
    assert_null(prefix_cache_check(r->cache));
    assert_int_equal(pages_used(&r->pages), 0);
    prefix_cache_free(r->cache);
    assert_int_equal(r->pages.n_free, r->pages.n_total);
    pages_dispose(&r->pages);
}

struct cache_domain prefix_rig_domain(uint64_t tenant)
{
    struct cache_domain d = {.revision = "rev"};

    memcpy(d.salt, &tenant, sizeof tenant);
    return d;
}

void prefix_rig_ids(char letter, int32_t ids[KV_PAGE_TOKENS])
{
    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        ids[i] = letter * 100 + i;
}

uint32_t prefix_rig_match(struct prefix_rig *r, struct prefix_user *u, uint64_t tenant,
                          const struct cache_domain *domain, const char *prompt)
{
    int32_t tokens[PREFIX_RIG_PAGES_MAX * KV_PAGE_TOKENS];
    uint32_t n = (uint32_t)strlen(prompt);

    assert_true(n <= PREFIX_RIG_PAGES_MAX);
    for (uint32_t i = 0; i < n; i++)
        prefix_rig_ids(prompt[i], tokens + (size_t)i * KV_PAGE_TOKENS);
    u->domain = *domain;
    prefix_chain_init(&u->chain, &u->domain, tenant);
    u->n_pages = prefix_cache_match(r->cache, &u->chain, tokens, n * KV_PAGE_TOKENS, u->pages);
    return u->n_pages;
}

enum prefix_insert prefix_rig_compute(struct prefix_rig *r, struct prefix_user *u, char letter)
{
    int32_t ids[KV_PAGE_TOKENS];
    uint32_t *page = &u->pages[u->n_pages];

    assert_true(u->n_pages < PREFIX_RIG_PAGES_MAX);
    assert_true(prefix_cache_evict(r->cache, 1) && pages_take(&r->pages, 1, page));
    u->n_pages++;
    prefix_rig_ids(letter, ids);
    return prefix_cache_insert(r->cache, &u->chain, ids, page);
}

uint32_t prefix_rig_run_in(struct prefix_rig *r, struct prefix_user *u, uint64_t tenant,
                           const struct cache_domain *domain, const char *prompt)
{
    uint32_t hit = prefix_rig_match(r, u, tenant, domain, prompt);

    for (size_t i = hit; prompt[i] != '\0'; i++)
        assert_int_not_equal(prefix_rig_compute(r, u, prompt[i]), PREFIX_REFUSED);
    return hit;
}

uint32_t prefix_rig_run(struct prefix_rig *r, struct prefix_user *u, uint64_t tenant,
                        const char *prompt)
{
    struct cache_domain domain = prefix_rig_domain(tenant);

    return prefix_rig_run_in(r, u, tenant, &domain, prompt);
}

void prefix_rig_end(struct prefix_rig *r, struct prefix_user *u)
{
    prefix_cache_drop(r->cache, u->n_pages, u->pages);
    u->n_pages = 0;
}

uint32_t prefix_rig_leave(struct prefix_rig *r, uint64_t tenant, const char *prompt)
{
    struct prefix_user u;
    uint32_t hit = prefix_rig_run(r, &u, tenant, prompt);

    prefix_rig_end(r, &u);
    return hit;
}

uint32_t prefix_rig_probe(struct prefix_rig *r, uint64_t tenant, const char *prompt)
{
    struct cache_domain domain = prefix_rig_domain(tenant);
    struct prefix_user u;
    uint32_t hit = prefix_rig_match(r, &u, tenant, &domain, prompt);

    prefix_rig_end(r, &u);
    return hit;
}
