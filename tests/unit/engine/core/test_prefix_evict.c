#include "engine/core/prefix_cache.h"

#include <string.h>

#include "tests/lib/prefix_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Evicts one page. */
static void evict_one(struct prefix_rig *r)
{
    assert_true(prefix_cache_evict(r->cache, r->pages.n_free + 1));
    assert_null(prefix_cache_check(r->cache));
}

static void test_the_suffix_goes_before_the_prefix(void **state)
{
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_leave(&r, 1, "ABCD");
    for (uint32_t left = 3; left < 4; left--) {
        evict_one(&r);
        assert_int_equal(r.pages.n_cached, left);
        assert_int_equal(prefix_rig_probe(&r, 1, "ABCD"), left);
    }
    prefix_rig_close(&r);
}

static void test_the_least_recently_used_goes_first(void **state)
{
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_leave(&r, 1, "A");
    prefix_rig_leave(&r, 1, "B");
    prefix_rig_leave(&r, 1, "C");
    prefix_rig_leave(&r, 1, "A");
    evict_one(&r);
    evict_one(&r);
    assert_int_equal(prefix_rig_probe(&r, 1, "B"), 0);
    assert_int_equal(prefix_rig_probe(&r, 1, "C"), 0);
    assert_int_equal(prefix_rig_probe(&r, 1, "A"), 1);
    prefix_rig_close(&r);
}

/* A prefix that many use is young, although its first suffixes are old. */
static void test_a_prefix_left_without_suffix_has_its_own_age(void **state)
{
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_leave(&r, 1, "AB");
    prefix_rig_leave(&r, 1, "X");
    prefix_rig_leave(&r, 1, "A");
    evict_one(&r); /* B: the oldest leaf */
    evict_one(&r); /* X, not A, though A is a leaf now */
    assert_int_equal(prefix_rig_probe(&r, 1, "X"), 0);
    assert_int_equal(prefix_rig_probe(&r, 1, "AB"), 1);
    prefix_rig_close(&r);
}

static void test_pages_in_use_are_never_evicted(void **state)
{
    struct prefix_rig r;
    struct prefix_user u;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_leave(&r, 1, "ABC");
    prefix_rig_run(&r, &u, 1, "AB");
    assert_int_equal(pages_available(&r.pages), 6);
    assert_true(prefix_cache_evict(r.cache, 6));
    assert_int_equal(r.pages.n_free, 6);
    assert_int_equal(pages_used(&r.pages), 2);
    assert_int_equal(prefix_rig_probe(&r, 1, "AB"), 2);
    prefix_rig_end(&r, &u);
    prefix_rig_close(&r);
}

static void test_asking_for_more_than_there_is_evicts_nothing(void **state)
{
    struct prefix_rig r;
    struct prefix_user u;

    (void)state;
    prefix_rig_open(&r, 4, 1000, NULL);
    prefix_rig_leave(&r, 1, "AB");
    prefix_rig_run(&r, &u, 1, "C");
    assert_false(prefix_cache_evict(r.cache, 4));
    assert_int_equal(r.pages.n_cached, 2);
    assert_true(prefix_cache_evict(r.cache, 3));
    prefix_rig_end(&r, &u);
    prefix_rig_close(&r);
}

static void test_a_tenant_above_its_share_loses_its_own_oldest_at_once(void **state)
{
    struct prefix_cache_stats stats;
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 16, 250, NULL); /* 4 pages */
    prefix_rig_leave(&r, 2, "PQ");
    prefix_rig_leave(&r, 1, "AB");
    prefix_rig_leave(&r, 1, "CD");
    assert_int_equal(r.pages.n_cached, 6);
    prefix_rig_leave(&r, 1, "E");
    assert_int_equal(r.pages.n_cached, 6);
    prefix_cache_stats(r.cache, &stats);
    assert_int_equal(stats.evictions, 1);
    assert_int_equal(prefix_rig_probe(&r, 1, "AB"), 1);
    assert_int_equal(prefix_rig_probe(&r, 1, "CD"), 2);
    assert_int_equal(prefix_rig_probe(&r, 2, "PQ"), 2);
    prefix_rig_close(&r);
}

static void test_a_request_larger_than_the_share_leaves_its_beginning(void **state)
{
    struct prefix_rig r;

    (void)state;
    prefix_rig_open(&r, 16, 250, NULL);
    prefix_rig_leave(&r, 1, "ABCDEFGH");
    assert_int_equal(r.pages.n_cached, 4);
    assert_int_equal(prefix_rig_probe(&r, 1, "ABCDEFGH"), 4);
    prefix_rig_close(&r);
}

/* Tenant 1 has more entries than its share, most of them in use: its cached page goes before the
 * older one of tenant 2. */
static void test_tenants_above_their_share_give_first(void **state)
{
    struct prefix_rig r;
    struct prefix_user u;

    (void)state;
    prefix_rig_open(&r, 16, 250, NULL);
    prefix_rig_leave(&r, 2, "P");
    prefix_rig_leave(&r, 1, "A");
    prefix_rig_run(&r, &u, 1, "CDEF");
    evict_one(&r);
    assert_int_equal(prefix_rig_probe(&r, 1, "A"), 0);
    assert_int_equal(prefix_rig_probe(&r, 2, "P"), 1);
    prefix_rig_end(&r, &u);
    prefix_rig_close(&r);
}

static void test_a_share_of_nothing_caches_nothing_unused(void **state)
{
    struct prefix_rig r;
    struct prefix_user a, b;

    (void)state;
    prefix_rig_open(&r, 8, 0, NULL);
    prefix_rig_run(&r, &a, 1, "AB");
    assert_int_equal(prefix_rig_run(&r, &b, 1, "AB"), 2);
    prefix_rig_end(&r, &a);
    prefix_rig_end(&r, &b);
    assert_int_equal(r.pages.n_free, 8);
    prefix_rig_close(&r);
}

/* What an administrator shares across tenants has one salt for all; a page is charged to the tenant
 * that computed it. */
static void test_a_bound_never_takes_a_prefix_from_below_others(void **state)
{
    struct cache_domain public_domain = prefix_rig_domain(9);
    struct prefix_rig r;
    struct prefix_user a, b;

    (void)state;
    prefix_rig_open(&r, 20, 50, NULL); /* 1 page */
    prefix_rig_run_in(&r, &a, 1, &public_domain, "AB");
    assert_int_equal(prefix_rig_run_in(&r, &b, 2, &public_domain, "ABC"), 2);
    prefix_rig_end(&r, &a);
    prefix_rig_end(&r, &b);
    assert_null(prefix_cache_check(r.cache));
    assert_int_equal(r.pages.n_cached, 3);
    evict_one(&r); /* C, and then B, which had been above tenant 1's bound */
    assert_int_equal(r.pages.n_cached, 1);
    prefix_rig_close(&r);
}

static void test_a_share_above_all_pages_is_refused(void **state)
{
    struct prefix_cache_config cfg = {.tenant_share_permille = 1001};
    struct prefix_cache *cache = NULL;
    struct pages pages;

    (void)state;
    assert_int_equal(pages_init(&pages, 4), ST_OK);
    assert_int_equal(prefix_cache_new(&cfg, &pages, &cache), ST_INVALID);
    assert_null(cache);
    pages_dispose(&pages);
}

static void test_a_flush_forgets_all_and_ends_running_chains(void **state)
{
    struct prefix_rig r;
    struct prefix_user u;

    (void)state;
    prefix_rig_open(&r, 8, 1000, NULL);
    prefix_rig_leave(&r, 1, "AB");
    prefix_rig_leave(&r, 2, "AC");
    prefix_rig_run(&r, &u, 1, "AD");
    prefix_cache_flush(r.cache);
    assert_null(prefix_cache_check(r.cache));
    assert_int_equal(r.pages.n_cached, 0);
    assert_int_equal(pages_used(&r.pages), 2);
    assert_int_equal(prefix_rig_probe(&r, 1, "AD"), 0);
    assert_int_equal(prefix_rig_compute(&r, &u, 'E'), PREFIX_REFUSED);
    prefix_rig_end(&r, &u);
    assert_int_equal(r.pages.n_free, 8);
    prefix_rig_close(&r);
}

/* vllm#42125: what was computed with an adapter outlived it. Here it could not be hit by another
 * content anyway; the flush gives its memory back. */
static void test_a_dropped_adapter_takes_its_pages_along_and_no_others(void **state)
{
    struct cache_domain adapted = prefix_rig_domain(1), other = prefix_rig_domain(1);
    struct prefix_rig r;
    struct prefix_user u;

    (void)state;
    adapted.has_adapter = other.has_adapter = true;
    memset(adapted.adapter, 1, sizeof adapted.adapter);
    memset(other.adapter, 2, sizeof other.adapter);
    prefix_rig_open(&r, 12, 1000, NULL);
    prefix_rig_leave(&r, 1, "AB");
    prefix_rig_run_in(&r, &u, 1, &other, "AB");
    prefix_rig_end(&r, &u);
    prefix_rig_run_in(&r, &u, 1, &adapted, "ABCD");
    prefix_rig_end(&r, &u);
    prefix_rig_run_in(&r, &u, 1, &adapted, "ABE");
    prefix_cache_flush_adapter(r.cache, adapted.adapter);
    assert_null(prefix_cache_check(r.cache));
    assert_int_equal(r.pages.n_cached, 4);
    prefix_rig_end(&r, &u);
    assert_int_equal(r.pages.n_cached, 4);
    assert_int_equal(prefix_rig_match(&r, &u, 1, &adapted, "AB"), 0);
    assert_int_equal(prefix_rig_match(&r, &u, 1, &other, "AB"), 2);
    prefix_rig_end(&r, &u);
    assert_int_equal(prefix_rig_probe(&r, 1, "AB"), 2);
    prefix_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_suffix_goes_before_the_prefix),
        cmocka_unit_test(test_the_least_recently_used_goes_first),
        cmocka_unit_test(test_a_prefix_left_without_suffix_has_its_own_age),
        cmocka_unit_test(test_pages_in_use_are_never_evicted),
        cmocka_unit_test(test_asking_for_more_than_there_is_evicts_nothing),
        cmocka_unit_test(test_a_tenant_above_its_share_loses_its_own_oldest_at_once),
        cmocka_unit_test(test_a_request_larger_than_the_share_leaves_its_beginning),
        cmocka_unit_test(test_tenants_above_their_share_give_first),
        cmocka_unit_test(test_a_share_of_nothing_caches_nothing_unused),
        cmocka_unit_test(test_a_bound_never_takes_a_prefix_from_below_others),
        cmocka_unit_test(test_a_share_above_all_pages_is_refused),
        cmocka_unit_test(test_a_flush_forgets_all_and_ends_running_chains),
        cmocka_unit_test(test_a_dropped_adapter_takes_its_pages_along_and_no_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
