#include "engine/core/pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_every_page_is_handed_out_once(void **state)
{
    uint32_t out[8];
    struct pages p;
    unsigned seen = 0;

    (void)state;
    assert_int_equal(pages_init(&p, 8), ST_OK);
    assert_true(pages_take(&p, 3, out));
    assert_true(pages_take(&p, 5, out + 3));
    for (int i = 0; i < 8; i++)
        seen |= 1u << out[i];
    assert_int_equal(seen, 0xFF);
    assert_int_equal(pages_used(&p), 8);
    pages_dispose(&p);
}

static void test_taking_more_than_is_free_takes_nothing(void **state)
{
    uint32_t out[5];
    struct pages p;

    (void)state;
    assert_int_equal(pages_init(&p, 4), ST_OK);
    assert_false(pages_take(&p, 5, out));
    assert_int_equal(p.n_free, 4);
    assert_true(pages_take(&p, 4, out));
    pages_dispose(&p);
}

static void test_a_shared_page_is_free_after_its_last_reference(void **state)
{
    struct pages p;
    uint32_t page;

    (void)state;
    assert_int_equal(pages_init(&p, 1), ST_OK);
    assert_true(pages_take(&p, 1, &page));
    pages_share(&p, page);
    pages_drop(&p, 1, &page);
    assert_int_equal(p.n_free, 0);
    pages_drop(&p, 1, &page);
    assert_int_equal(p.n_free, 1);
    pages_dispose(&p);
}

static void test_a_kept_page_is_cached_after_its_last_reference(void **state)
{
    struct pages p;
    uint32_t page, other;

    (void)state;
    assert_int_equal(pages_init(&p, 1), ST_OK);
    assert_true(pages_take(&p, 1, &page));
    pages_keep(&p, page);
    assert_int_equal(pages_state(&p, page), PAGE_USED);
    pages_drop(&p, 1, &page);
    assert_int_equal(pages_state(&p, page), PAGE_CACHED);
    assert_int_equal(pages_used(&p), 0);
    assert_int_equal(pages_available(&p), 1);
    assert_false(pages_take(&p, 1, &other));
    pages_dispose(&p);
}

static void test_a_cached_page_is_used_again_when_shared(void **state)
{
    struct pages p;
    uint32_t page;

    (void)state;
    assert_int_equal(pages_init(&p, 1), ST_OK);
    assert_true(pages_take(&p, 1, &page));
    pages_keep(&p, page);
    pages_drop(&p, 1, &page);
    pages_share(&p, page);
    assert_int_equal(pages_state(&p, page), PAGE_USED);
    assert_int_equal(p.n_cached, 0);
    assert_int_equal(p.n_free, 0);
    pages_drop(&p, 1, &page);
    assert_int_equal(pages_state(&p, page), PAGE_CACHED);
    pages_dispose(&p);
}

static void test_a_forgotten_page_is_free_as_soon_as_nobody_refers_to_it(void **state)
{
    struct pages p;
    uint32_t out[2];

    (void)state;
    assert_int_equal(pages_init(&p, 2), ST_OK);
    assert_true(pages_take(&p, 2, out));
    pages_keep(&p, out[0]);
    pages_keep(&p, out[1]);
    pages_forget(&p, out[0]);
    assert_int_equal(pages_state(&p, out[0]), PAGE_USED);
    pages_drop(&p, 2, out);
    assert_int_equal(pages_state(&p, out[0]), PAGE_FREE);
    assert_int_equal(pages_state(&p, out[1]), PAGE_CACHED);
    pages_forget(&p, out[1]);
    assert_int_equal(p.n_free, 2);
    assert_int_equal(p.n_cached, 0);
    pages_dispose(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_page_is_handed_out_once),
        cmocka_unit_test(test_taking_more_than_is_free_takes_nothing),
        cmocka_unit_test(test_a_shared_page_is_free_after_its_last_reference),
        cmocka_unit_test(test_a_kept_page_is_cached_after_its_last_reference),
        cmocka_unit_test(test_a_cached_page_is_used_again_when_shared),
        cmocka_unit_test(test_a_forgotten_page_is_free_as_soon_as_nobody_refers_to_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
