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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_page_is_handed_out_once),
        cmocka_unit_test(test_taking_more_than_is_free_takes_nothing),
        cmocka_unit_test(test_a_shared_page_is_free_after_its_last_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
