/* Sizes that would overflow, and members found from their structs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void test_a_product_that_fits_is_given(void **state)
{
    size_t out = 0;

    (void)state;
    assert_true(size_mul(SIZE_MAX, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_true(size_mul(SIZE_MAX / 3, 3, &out));
    assert_true(out == SIZE_MAX / 3 * 3);
    assert_true(size_mul(0, SIZE_MAX, &out));
    assert_true(out == 0);
}

static void test_a_product_that_overflows_leaves_the_result(void **state)
{
    size_t out = 7;

    (void)state;
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_false(size_mul((size_t)1 << 32, (size_t)1 << 32, &out));
    assert_false(size_mul(SIZE_MAX, SIZE_MAX, &out));
    assert_true(out == 7);
}

static void test_a_sum_has_the_same_edges(void **state)
{
    size_t out = 7;

    (void)state;
    assert_false(size_add(SIZE_MAX, 1, &out));
    assert_false(size_add(SIZE_MAX, SIZE_MAX, &out));
    assert_true(out == 7);
    assert_true(size_add(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    /* The result may be one of the terms. */
    out = 3;
    assert_true(size_add(out, 4, &out));
    assert_true(out == 7);
}

static void test_min_and_max_are_of_signed_numbers(void **state)
{
    (void)state;
    assert_true(int64_min(INT64_MIN, 0) == INT64_MIN);
    assert_true(int64_max(INT64_MIN, -1) == -1);
    assert_true(int64_min(3, 2) == 2);
    assert_true(int64_max(INT64_MAX, 2) == INT64_MAX);
}

static void test_a_struct_is_found_from_its_member(void **state)
{
    struct outer {
        char head;
        struct inner {
            int x;
        } parts[3];
    } o;

    (void)state;
    assert_ptr_equal(CONTAINER_OF(&o.parts[0], struct outer, parts[0]), &o);
    assert_ptr_equal(CONTAINER_OF(&o.parts[2], struct outer, parts[2]), &o);
    assert_int_equal(COUNT_OF(o.parts), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_product_that_fits_is_given),
        cmocka_unit_test(test_a_product_that_overflows_leaves_the_result),
        cmocka_unit_test(test_a_sum_has_the_same_edges),
        cmocka_unit_test(test_min_and_max_are_of_signed_numbers),
        cmocka_unit_test(test_a_struct_is_found_from_its_member),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
