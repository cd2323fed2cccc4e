/* The prefix cache against a model that knows nothing of heaps, hashes or counters: it keeps for
 * each page the whole text up to its end, and looks at all pages for every question. Random
 * sequences of operations from a seed; after each one every page must be in the model's state, and
 * the cache's own invariants hold. */
#include "engine/core/prefix_cache.h"

#include <string.h>

#include "tests/lib/prefix_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum {
    N_PAGES = 40,
    N_USERS = 8,
    N_TENANTS = 3,
    N_DOMAINS = 5,
    ADAPTED = 3, /* domain of tenant 0 with an adapter */
    PUBLIC = 4,  /* domain that all tenants share */
    DEPTH = 8,   /* pages of the longest sequence */
    OPERATIONS = 6000
};

struct node { /* of the page with this number */
    bool live;
    int domain;
    uint64_t tenant;
    char path[DEPTH + 1]; /* letters of all pages up to this one */
    uint64_t last_use;
};

struct user {
    struct prefix_user real;
    bool running, ended;
    int domain;
    uint64_t tenant;
    uint32_t n_pages, n_chain, pages[DEPTH];
    char path[DEPTH + 1];
};

struct world {
    struct prefix_rig rig;
    struct cache_domain domains[N_DOMAINS];
    uint32_t share;
    struct node nodes[N_PAGES];
    struct user users[N_USERS];
    uint64_t tick, evictions, hits;
    uint64_t random;
};

static uint32_t draw(struct world *w, uint32_t below)
{
    w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(w->random >> 33) % below;
}

/* The model. */

static uint32_t refs(const struct world *w, uint32_t page)
{
    uint32_t n = 0;

    for (int u = 0; u < N_USERS; u++)
        for (uint32_t i = 0; i < w->users[u].n_pages; i++)
            n += w->users[u].pages[i] == page;
    return n;
}

static enum page_state state_of(const struct world *w, uint32_t page)
{
    if (refs(w, page) > 0)
        return PAGE_USED;
    return w->nodes[page].live ? PAGE_CACHED : PAGE_FREE;
}

static uint32_t count_state(const struct world *w, enum page_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < N_PAGES; i++)
        n += state_of(w, i) == state;
    return n;
}

static uint32_t find_path(const struct world *w, int domain, const char *path, size_t n)
{
    for (uint32_t i = 0; i < N_PAGES; i++) {
        const struct node *node = &w->nodes[i];

        if (node->live && node->domain == domain && strlen(node->path) == n &&
            memcmp(node->path, path, n) == 0)
            return i;
    }
    return PREFIX_NONE;
}

static bool is_leaf(const struct world *w, uint32_t page)
{
    const struct node *node = &w->nodes[page];
    size_t n = strlen(node->path);

    if (state_of(w, page) != PAGE_CACHED)
        return false;
    for (uint32_t i = 0; i < N_PAGES; i++)
        if (w->nodes[i].live && w->nodes[i].domain == node->domain &&
            strlen(w->nodes[i].path) == n + 1 && memcmp(w->nodes[i].path, node->path, n) == 0)
            return false;
    return true;
}

static uint32_t count_of(const struct world *w, uint64_t tenant, bool only_cached)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < N_PAGES; i++)
        n += w->nodes[i].live && w->nodes[i].tenant == tenant &&
             !(only_cached && state_of(w, i) != PAGE_CACHED);
    return n;
}

/* The next to go: of tenants above their share first, then the oldest. above_bound: only of tenants
 * whose cached pages alone are above it. */
static uint32_t next_victim(const struct world *w, bool above_bound)
{
    uint32_t best = PREFIX_NONE;
    bool best_first = false;

    for (uint32_t i = 0; i < N_PAGES; i++) {
        uint64_t tenant = w->nodes[i].tenant;
        bool first = count_of(w, tenant, false) > w->share;

        if (!is_leaf(w, i) || (above_bound && count_of(w, tenant, true) <= w->share))
            continue;
        if (best == PREFIX_NONE || (first && !best_first) ||
            (first == best_first && w->nodes[i].last_use < w->nodes[best].last_use)) {
            best = i;
            best_first = first;
        }
    }
    return best;
}

static void evict_victim(struct world *w, uint32_t page)
{
    w->nodes[page].live = false;
    w->evictions++;
}

static void hold_bounds(struct world *w)
{
    uint32_t page;

    while ((page = next_victim(w, true)) != PREFIX_NONE)
        evict_victim(w, page);
}

static void model_evict(struct world *w, uint32_t n)
{
    while (count_state(w, PAGE_FREE) < n) {
        evict_victim(w, next_victim(w, false));
        hold_bounds(w);
    }
}

static void model_end(struct world *w, struct user *u)
{
    while (u->n_pages > 0) {
        uint32_t page = u->pages[--u->n_pages];

        if (state_of(w, page) != PAGE_CACHED)
            continue;
        w->nodes[page].last_use = ++w->tick;
        hold_bounds(w);
    }
    u->running = false;
}

static enum prefix_insert model_insert(struct world *w, struct user *u)
{
    uint32_t i = u->n_chain, own = u->pages[i];
    uint32_t held = find_path(w, u->domain, u->path, i + 1);

    if (i > 0 && !w->nodes[u->pages[i - 1]].live)
        u->ended = true;
    if (held != PREFIX_NONE && held != own && refs(w, own) > 1)
        u->ended = true;
    if (u->ended)
        return PREFIX_REFUSED;
    u->n_chain++;
    if (held != PREFIX_NONE) {
        u->pages[i] = held;
        return held == own ? PREFIX_INSERTED : PREFIX_ADOPTED;
    }
    w->nodes[own] = (struct node){.live = true, .domain = u->domain, .tenant = u->tenant};
    memcpy(w->nodes[own].path, u->path, i + 1);
    return PREFIX_INSERTED;
}

static void model_flush(struct world *w, int domain)
{
    for (uint32_t i = 0; i < N_PAGES; i++)
        if (domain == N_DOMAINS || w->nodes[i].domain == domain)
            w->nodes[i].live = false;
}

/* The operations: each on both sides. */

static void begin(struct world *w, struct user *u)
{
    uint32_t n = 1 + draw(w, DEPTH - 1), hit, page;
    char prompt[DEPTH + 1] = "";

    *u = (struct user){.running = true, .domain = (int)draw(w, N_DOMAINS)};
    u->tenant =
        u->domain == PUBLIC ? draw(w, N_TENANTS) : (u->domain == ADAPTED ? 0 : (uint64_t)u->domain);
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (char)('A' + draw(w, 2));
    hit = prefix_rig_match(&w->rig, &u->real, u->tenant, &w->domains[u->domain], prompt);
    while (u->n_pages < n &&
           (page = find_path(w, u->domain, prompt, u->n_pages + 1)) != PREFIX_NONE)
        u->pages[u->n_pages++] = page;
    u->n_chain = u->n_pages;
    memcpy(u->path, prompt, u->n_pages);
    w->hits += u->n_pages;
    assert_int_equal(hit, u->n_pages);
    assert_memory_equal(u->real.pages, u->pages, hit * sizeof u->pages[0]);
}

static void take_page(struct world *w, struct user *u)
{
    uint32_t page;
    bool can = count_state(w, PAGE_FREE) + count_state(w, PAGE_CACHED) > 0;

    if (u->n_pages == DEPTH)
        return;
    assert_int_equal(prefix_cache_evict(w->rig.cache, 1), can);
    if (!can)
        return;
    model_evict(w, 1);
    assert_true(pages_take(&w->rig.pages, 1, &page));
    assert_int_equal(state_of(w, page), PAGE_FREE);
    u->path[u->n_pages] = (char)('A' + draw(w, 2));
    u->real.pages[u->real.n_pages++] = page;
    u->pages[u->n_pages++] = page;
}

static void insert_page(struct world *w, struct user *u)
{
    int32_t ids[KV_PAGE_TOKENS];
    uint32_t i = u->n_chain;
    enum prefix_insert expected;

    if (i == u->n_pages)
        return;
    expected = model_insert(w, u);
    prefix_rig_ids(u->path[i], ids);
    assert_int_equal(prefix_cache_insert(w->rig.cache, &u->real.chain, ids, &u->real.pages[i]),
                     expected);
    assert_int_equal(u->real.pages[i], u->pages[i]);
}

static void fork_user(struct world *w, const struct user *from)
{
    for (int k = 0; k < N_USERS; k++) {
        struct user *to = &w->users[k];

        if (to->running)
            continue;
        *to = *from;
        to->real.chain.domain = &to->real.domain;
        for (uint32_t i = 0; i < to->n_pages; i++)
            pages_share(&w->rig.pages, to->pages[i]);
        return;
    }
}

static void end(struct world *w, struct user *u)
{
    prefix_rig_end(&w->rig, &u->real);
    model_end(w, u);
}

/* What happens without a sequence, now and then. */
static void disturb(struct world *w)
{
    uint32_t n;

    switch (draw(w, 12)) {
    case 0:
        prefix_cache_flush(w->rig.cache);
        model_flush(w, N_DOMAINS);
        break;
    case 1:
    case 2:
        prefix_cache_flush_adapter(w->rig.cache, w->domains[ADAPTED].adapter);
        model_flush(w, ADAPTED);
        break;
    default:
        n = draw(w, count_state(w, PAGE_FREE) + count_state(w, PAGE_CACHED) + 1);
        assert_true(prefix_cache_evict(w->rig.cache, n));
        model_evict(w, n);
    }
}

static void operate(struct world *w)
{
    struct user *u = &w->users[draw(w, N_USERS)];
    uint32_t what = draw(w, 100);

    if (what < 2)
        disturb(w);
    else if (!u->running)
        begin(w, u);
    else if (what < 40)
        take_page(w, u);
    else if (what < 82)
        insert_page(w, u);
    else if (what < 86)
        fork_user(w, u);
    else
        end(w, u);
}

static void compare(const struct world *w)
{
    struct prefix_cache_stats stats;

    for (uint32_t i = 0; i < N_PAGES; i++) {
        assert_int_equal(pages_state(&w->rig.pages, i), state_of(w, i));
        assert_int_equal(w->rig.pages.refs[i], refs(w, i));
        assert_int_equal(w->rig.pages.kept[i], w->nodes[i].live);
    }
    prefix_cache_stats(w->rig.cache, &stats);
    assert_int_equal(stats.evictions, w->evictions);
    assert_int_equal(stats.hit_tokens, w->hits * KV_PAGE_TOKENS);
    assert_int_equal(stats.collisions, 0);
    assert_null(prefix_cache_check(w->rig.cache));
}

static void run_world(uint64_t seed, uint32_t share_permille)
{
    struct world w = {.random = seed, .share = N_PAGES * share_permille / 1000};

    prefix_rig_open(&w.rig, N_PAGES, share_permille, NULL);
    for (int i = 0; i < N_DOMAINS; i++)
        w.domains[i] = prefix_rig_domain(i == ADAPTED ? 0 : (uint64_t)i);
    w.domains[ADAPTED].has_adapter = true;
    memset(w.domains[ADAPTED].adapter, 5, CACHE_HASH_BYTES);
    for (int i = 0; i < OPERATIONS; i++) {
        operate(&w);
        compare(&w);
    }
    for (int i = 0; i < N_USERS; i++)
        end(&w, &w.users[i]);
    compare(&w);
    assert_true(w.hits > 100 && w.evictions > 100); /* else this proved nothing */
    prefix_rig_close(&w.rig);
}

static void test_it_does_what_the_naive_model_does(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        run_world(seed, 1000);
}

static void test_it_does_what_the_naive_model_does_within_narrow_shares(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++)
        run_world(seed, 75 * (uint32_t)seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_does_what_the_naive_model_does),
        cmocka_unit_test(test_it_does_what_the_naive_model_does_within_narrow_shares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
