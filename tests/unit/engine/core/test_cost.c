#include "engine/core/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_rows_cost_themselves_and_what_they_attend_to(void **state)
{
    const struct cost c = {.base_ns = 500, .row_ns = 100, .attended_ns = 3, .logits_ns = 7};
    uint64_t sum = 0;

    (void)state;
    for (uint32_t p = 40; p < 60; p++)
        sum += 100 + 3 * (p + 1);
    assert_int_equal(cost_rows_ns(&c, 40, 20), sum);
    assert_int_equal(cost_rows_ns(&c, 40, 0), 0);
    assert_int_equal(cost_rows_ns(&c, 0, 1), 103);
}

static void test_a_time_pays_for_the_most_rows_that_fit(void **state)
{
    const struct cost c = {.row_ns = 100, .attended_ns = 3};

    (void)state;
    for (uint64_t ns = 0; ns < 20000; ns += 37) {
        uint32_t n = cost_rows_in(&c, 10, 64, ns);

        assert_true(n <= 64);
        assert_true(cost_rows_ns(&c, 10, n) <= ns);
        assert_true(n == 64 || cost_rows_ns(&c, 10, n + 1) > ns);
    }
}

static void test_without_costs_all_rows_fit(void **state)
{
    const struct cost c = {0};

    (void)state;
    assert_int_equal(cost_rows_in(&c, 1000, 64, 0), 64);
}

static void test_the_largest_step_does_not_overflow(void **state)
{
    const struct cost c = {.row_ns = COST_NS_MAX, .attended_ns = COST_ATTENDED_NS_MAX};
    uint64_t half = cost_rows_ns(&c, 0, 1 << 23), whole = cost_rows_ns(&c, 0, 1 << 24);

    (void)state;
    assert_true(whole > half * 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_cost_themselves_and_what_they_attend_to),
        cmocka_unit_test(test_a_time_pays_for_the_most_rows_that_fit),
        cmocka_unit_test(test_without_costs_all_rows_fit),
        cmocka_unit_test(test_the_largest_step_does_not_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
