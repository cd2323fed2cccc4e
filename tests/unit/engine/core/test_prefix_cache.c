#include "engine/core/prefix_cache.h"

#include <string.h>

#include "tests/lib/prefix_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_what_an_earlier_request_computed_is_hit(void **state)
{
    struct prefix_rig r;
    struct prefix_user a, b;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_run(&r, &a, 1, "ABC");
    prefix_rig_end(&r, &a);
    assert_int_equal(prefix_rig_run(&r, &b, 1, "ABD"), 2);
    assert_int_equal(b.pages[0], a.pages[0]);
    assert_int_equal(b.pages[1], a.pages[1]);
    assert_int_not_equal(b.pages[2], a.pages[2]);
    prefix_rig_end(&r, &b);
    prefix_rig_close(&r);
}

static void test_pages_are_hit_while_the_first_still_runs(void **state)
{
    struct prefix_rig r;
    struct prefix_user a, b;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_run(&r, &a, 1, "AB");
    assert_int_equal(prefix_rig_run(&r, &b, 1, "ABC"), 2);
    assert_int_equal(pages_used(&r.pages), 3);
    prefix_rig_end(&r, &a);
    assert_int_equal(pages_used(&r.pages), 3);
    assert_null(prefix_cache_check(r.cache));
    prefix_rig_end(&r, &b);
    prefix_rig_close(&r);
}

static void test_a_page_hits_only_after_the_same_pages(void **state)
{
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_leave(&r, 1, "AB");
    assert_int_equal(prefix_rig_probe(&r, 1, "B"), 0);
    assert_int_equal(prefix_rig_probe(&r, 1, "CB"), 0);
    assert_int_equal(prefix_rig_probe(&r, 1, "AAB"), 1);
    prefix_rig_close(&r);
}

/* The last token of a prompt must be computed, for its logits: the scheduler leaves it out. */
static void test_only_whole_pages_below_the_limit_are_read(void **state)
{
    int32_t tokens[3 * KV_PAGE_TOKENS];
    struct prefix_rig r;
    struct prefix_user u;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_leave(&r, 1, "ABC");
    for (int i = 0; i < 3; i++)
        prefix_rig_ids((char)('A' + i), tokens + (size_t)i * KV_PAGE_TOKENS);
    u.domain = prefix_rig_domain(1);
    prefix_chain_init(&u.chain, &u.domain, 1);
    u.n_pages = prefix_cache_match(r.cache, &u.chain, tokens, 3 * KV_PAGE_TOKENS - 1, u.pages);
    assert_int_equal(u.n_pages, 2);
    prefix_rig_end(&r, &u);
    prefix_chain_init(&u.chain, &u.domain, 1);
    assert_int_equal(prefix_cache_match(r.cache, &u.chain, tokens, 0, u.pages), 0);
    prefix_rig_close(&r);
}

/* CVE-2025-46570; vllm#16016, #17045, #39082, #53347: a hit that another tenant can time. */
static void test_two_tenants_with_one_prompt_never_hit_across(void **state)
{
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 16, 1000, NULL);
    assert_int_equal(prefix_rig_leave(&r, 1, "ABC"), 0);
    assert_int_equal(prefix_rig_leave(&r, 2, "ABC"), 0);
    assert_int_equal(prefix_rig_leave(&r, 1, "ABC"), 3);
    assert_int_equal(prefix_rig_leave(&r, 2, "ABC"), 3);
    prefix_rig_close(&r);
}

static struct cache_domain adapter_domain(uint8_t content, float scale)
{
    struct cache_domain d = prefix_rig_domain(1);

    d.has_adapter = true;
    d.adapter_scale = scale;
    memset(d.adapter, content, sizeof d.adapter);
    return d;
}

static uint32_t leave_in(struct prefix_rig *r, const struct cache_domain *d, const char *prompt)
{
    struct prefix_user u;
    uint32_t hit = prefix_rig_run_in(r, &u, 1, d, prompt);

    prefix_rig_end(r, &u);
    return hit;
}

/* vllm#30931, #42125, #3264: two contents under one name, or one loaded over the other. A name is
 * nothing here: another content is another key, the same content loaded again is the same key. */
static void test_adapters_hit_by_their_content(void **state)
{
    struct cache_domain none = prefix_rig_domain(1), first = adapter_domain(1, 1),
                        second = adapter_domain(2, 1), weaker = adapter_domain(1, 0.5f);
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 16, 1000, NULL);
    assert_int_equal(leave_in(&r, &first, "AB"), 0);
    assert_int_equal(leave_in(&r, &second, "AB"), 0);
    assert_int_equal(leave_in(&r, &weaker, "AB"), 0);
    assert_int_equal(leave_in(&r, &none, "AB"), 0);
    assert_int_equal(leave_in(&r, &first, "AB"), 2);
    prefix_rig_close(&r);
}

static void test_other_revision_kv_type_or_mode_never_hits(void **state)
{
    struct cache_domain d = prefix_rig_domain(1);
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 16, 1000, NULL);
    assert_int_equal(leave_in(&r, &d, "AB"), 0);
    d.kv_type++;
    assert_int_equal(leave_in(&r, &d, "AB"), 0);
    d.mode++;
    assert_int_equal(leave_in(&r, &d, "AB"), 0);
    d.revision = "rev2";
    assert_int_equal(leave_in(&r, &d, "AB"), 0);
    assert_int_equal(leave_in(&r, &d, "AB"), 2);
    prefix_rig_close(&r);
}

/* llama.cpp#29163: an aborted request's work was lost. */
static void test_a_cancelled_request_leaves_its_full_pages(void **state)
{
    struct prefix_rig r;
    struct prefix_user u;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_run(&r, &u, 1, "AB");
    assert_true(pages_take(&r.pages, 1, &u.pages[u.n_pages++])); /* begun, not full */
    prefix_rig_end(&r, &u);
    assert_int_equal(r.pages.n_cached, 2);
    assert_int_equal(r.pages.n_free, 6);
    assert_int_equal(prefix_rig_probe(&r, 1, "AB"), 2);
    prefix_rig_close(&r);
}

static void test_content_computed_twice_is_held_once(void **state)
{
    struct cache_domain domain = prefix_rig_domain(1);
    struct prefix_rig r;
    struct prefix_user a, b;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_match(&r, &a, 1, &domain, "ABC");
    prefix_rig_match(&r, &b, 1, &domain, "ABD");
    assert_int_equal(prefix_rig_compute(&r, &a, 'A'), PREFIX_INSERTED);
    assert_int_equal(prefix_rig_compute(&r, &b, 'A'), PREFIX_ADOPTED);
    assert_int_equal(b.pages[0], a.pages[0]);
    assert_int_equal(pages_used(&r.pages), 1);
    assert_int_equal(prefix_rig_compute(&r, &b, 'D'), PREFIX_INSERTED);
    prefix_rig_end(&r, &a);
    assert_null(prefix_cache_check(r.cache));
    prefix_rig_end(&r, &b);
    assert_int_equal(prefix_rig_probe(&r, 1, "AD"), 2);
    prefix_rig_close(&r);
}

static void fork_user(struct prefix_rig *r, const struct prefix_user *from, struct prefix_user *to)
{
    *to = *from;
    to->chain.domain = &to->domain;
    for (uint32_t i = 0; i < to->n_pages; i++)
        pages_share(&r->pages, to->pages[i]);
}

static void test_forks_of_a_sequence_go_on_apart(void **state)
{
    struct prefix_rig r;
    struct prefix_user a, b;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_run(&r, &a, 1, "AB");
    fork_user(&r, &a, &b);
    assert_int_equal(prefix_rig_compute(&r, &a, 'C'), PREFIX_INSERTED);
    assert_int_equal(prefix_rig_compute(&r, &b, 'D'), PREFIX_INSERTED);
    assert_int_equal(pages_used(&r.pages), 4);
    prefix_rig_end(&r, &a);
    assert_null(prefix_cache_check(r.cache));
    prefix_rig_end(&r, &b);
    assert_int_equal(prefix_rig_probe(&r, 1, "ABC"), 3);
    assert_int_equal(prefix_rig_probe(&r, 1, "ABD"), 3);
    prefix_rig_close(&r);
}

/* A page that both hold, not in the cache yet: whoever comes first inserts it for both. */
static void test_a_page_inserted_by_one_fork_is_known_to_the_other(void **state)
{
    int32_t ids[KV_PAGE_TOKENS];
    struct cache_domain domain = prefix_rig_domain(1);
    struct prefix_rig r;
    struct prefix_user a, b;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_ids('A', ids);
    prefix_rig_match(&r, &a, 1, &domain, "A");
    assert_true(pages_take(&r.pages, 1, &a.pages[a.n_pages++]));
    fork_user(&r, &a, &b);
    assert_int_equal(prefix_cache_insert(r.cache, &a.chain, ids, &a.pages[0]), PREFIX_INSERTED);
    assert_int_equal(prefix_cache_insert(r.cache, &b.chain, ids, &b.pages[0]), PREFIX_INSERTED);
    assert_int_equal(b.pages[0], a.pages[0]);
    assert_int_equal(prefix_rig_compute(&r, &b, 'B'), PREFIX_INSERTED);
    prefix_rig_end(&r, &a);
    prefix_rig_end(&r, &b);
    assert_int_equal(prefix_rig_probe(&r, 1, "AB"), 2);
    prefix_rig_close(&r);
}

/* Else one fork's entries would hang below a page that the other doesn't hold. */
static void test_a_page_shared_by_forks_is_not_given_up_for_another(void **state)
{
    int32_t ids[KV_PAGE_TOKENS];
    struct cache_domain domain = prefix_rig_domain(1);
    struct prefix_rig r;
    struct prefix_user a, b;
    uint32_t own;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_ids('A', ids);
    prefix_rig_match(&r, &a, 1, &domain, "A");
    assert_true(pages_take(&r.pages, 1, &own));
    a.pages[a.n_pages++] = own;
    fork_user(&r, &a, &b);
    prefix_rig_leave(&r, 1, "A");
    assert_int_equal(prefix_cache_insert(r.cache, &a.chain, ids, &a.pages[0]), PREFIX_REFUSED);
    assert_int_equal(a.pages[0], own);
    assert_int_equal(prefix_rig_compute(&r, &a, 'B'), PREFIX_REFUSED);
    assert_int_equal(prefix_rig_probe(&r, 1, "AB"), 1);
    prefix_rig_end(&r, &a);
    prefix_rig_end(&r, &b);
    prefix_rig_close(&r);
}

/* A hash of the ids alone: pages with the same ids after different ones collide. */
static void key_of_ids(const struct cache_domain *d, const struct cache_key *parent,
                       const int32_t *ids, struct cache_key *out)
{
    (void)d;
    (void)parent;
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, ids, 4);
}

static void key_of_nothing(const struct cache_domain *d, const struct cache_key *parent,
                           const int32_t *ids, struct cache_key *out)
{
    (void)d;
    (void)parent;
    (void)ids;
    memset(out, 7, sizeof *out);
}

static void test_a_collision_of_ids_is_a_miss(void **state)
{
    struct cache_domain domain = prefix_rig_domain(1);
    struct prefix_cache_stats stats;
    struct prefix_rig r;
    struct prefix_user u;

    (void)state;
    prefix_rig_open(&r, 8, 1000, key_of_nothing);
    prefix_rig_leave(&r, 1, "A");
    assert_int_equal(prefix_rig_match(&r, &u, 1, &domain, "B"), 0);
    prefix_cache_stats(r.cache, &stats);
    assert_int_equal(stats.collisions, 1);
    assert_int_equal(prefix_rig_compute(&r, &u, 'B'), PREFIX_REFUSED);
    prefix_rig_end(&r, &u);
    assert_int_equal(prefix_rig_probe(&r, 1, "B"), 0);
    assert_int_equal(prefix_rig_probe(&r, 1, "A"), 1);
    prefix_rig_close(&r);
}

static void test_a_collision_of_parents_is_a_miss(void **state)
{
    struct prefix_cache_stats stats;
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 8, 1000, key_of_ids);
    prefix_rig_leave(&r, 1, "AB");
    prefix_rig_leave(&r, 1, "C");
    assert_int_equal(prefix_rig_probe(&r, 1, "CB"), 1);
    prefix_cache_stats(r.cache, &stats);
    assert_int_equal(stats.collisions, 1);
    assert_int_equal(prefix_rig_probe(&r, 1, "AB"), 2);
    prefix_rig_close(&r);
}

static void test_queries_and_hits_are_counted_in_tokens(void **state)
{
    struct prefix_cache_stats stats;
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_leave(&r, 1, "ABC");
    prefix_rig_leave(&r, 1, "ABD");
    prefix_cache_stats(r.cache, &stats);
    assert_int_equal(stats.query_tokens, 6 * KV_PAGE_TOKENS);
    assert_int_equal(stats.hit_tokens, 2 * KV_PAGE_TOKENS);
    assert_int_equal(stats.insertions, 4);
    assert_int_equal(stats.n_entries, 4);
    assert_int_equal(stats.collisions, 0);
    prefix_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_an_earlier_request_computed_is_hit),
        cmocka_unit_test(test_pages_are_hit_while_the_first_still_runs),
        cmocka_unit_test(test_a_page_hits_only_after_the_same_pages),
        cmocka_unit_test(test_only_whole_pages_below_the_limit_are_read),
        cmocka_unit_test(test_two_tenants_with_one_prompt_never_hit_across),
        cmocka_unit_test(test_adapters_hit_by_their_content),
        cmocka_unit_test(test_other_revision_kv_type_or_mode_never_hits),
        cmocka_unit_test(test_a_cancelled_request_leaves_its_full_pages),
        cmocka_unit_test(test_content_computed_twice_is_held_once),
        cmocka_unit_test(test_forks_of_a_sequence_go_on_apart),
        cmocka_unit_test(test_a_page_inserted_by_one_fork_is_known_to_the_other),
        cmocka_unit_test(test_a_page_shared_by_forks_is_not_given_up_for_another),
        cmocka_unit_test(test_a_collision_of_ids_is_a_miss),
        cmocka_unit_test(test_a_collision_of_parents_is_a_miss),
        cmocka_unit_test(test_queries_and_hits_are_counted_in_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
