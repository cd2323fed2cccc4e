#include "engine/core/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/size.h"

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
        uint32_t n = cost_rows_in(&c, 10, 64, 64, ns);

        assert_true(n <= 64);
        assert_true(cost_rows_ns(&c, 10, n) <= ns);
        assert_true(n == 64 || cost_rows_ns(&c, 10, n + 1) > ns);
    }
}

/* The rows of a prompt whose scores are wanted. */
static void test_rows_with_logits_cost_more(void **state)
{
    const struct cost c = {.row_ns = 100, .logits_ns = 1000};

    (void)state;
    assert_int_equal(cost_chunk_ns(&c, 0, 8, 5), 3800);
    assert_int_equal(cost_chunk_ns(&c, 0, 8, 8), 800);
    assert_int_equal(cost_rows_in(&c, 0, 5, 64, 3799), 7);
    assert_int_equal(cost_rows_in(&c, 0, 5, 64, 3800), 8);
    assert_int_equal(cost_rows_in(&c, 0, 64, 64, 3800), 38);
}

static void test_without_costs_all_rows_fit(void **state)
{
    const struct cost c = {0};

    (void)state;
    assert_int_equal(cost_rows_in(&c, 1000, 0, 64, 0), 64);
}

static void test_the_largest_step_does_not_overflow(void **state)
{
    const struct cost c = {.row_ns = COST_NS_MAX, .attended_ns = COST_ATTENDED_NS_MAX};
    uint64_t half = cost_rows_ns(&c, 0, 1 << 23), whole = cost_rows_ns(&c, 0, 1 << 24);

    (void)state;
    assert_true(whole > half * 3);
}

/* What steps of 1000 ns that take `took` are predicted to take after n of them. */
static uint64_t learnt(struct pace *p, uint64_t took, int n)
{
    const struct cost c = {.base_ns = 400, .row_ns = 600};

    for (int i = 0; i < n; i++)
        pace_learn(p, 1000, took);
    return pace_cost(p, &c).base_ns + pace_cost(p, &c).row_ns;
}

static void test_the_pace_of_steps_is_learnt(void **state)
{
    static const uint64_t took[] = {70, 300, 900, 1000, 1100, 3000, 15000};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(took); i++) {
        struct pace p;

        pace_init(&p);
        assert_int_equal(learnt(&p, 1000, 1), 1000);
        assert_in_range(learnt(&p, took[i], 400), took[i] * 98 / 100 - 2, took[i] * 102 / 100);
    }
}

static void test_a_step_that_was_held_up_moves_the_pace_by_little(void **state)
{
    struct pace p;

    (void)state;
    pace_init(&p);
    assert_in_range(learnt(&p, UINT64_MAX, 1), 1000, 1032);
    assert_in_range(learnt(&p, 0, 1), 984, 1032);
}

static void test_the_pace_is_bounded(void **state)
{
    const struct cost most = {.base_ns = COST_NS_MAX, .attended_ns = COST_ATTENDED_NS_MAX};
    struct pace p;

    (void)state;
    pace_init(&p);
    assert_int_equal(learnt(&p, UINT64_MAX, 1000), 16000);
    assert_int_equal(pace_cost(&p, &most).base_ns, COST_NS_MAX);
    assert_int_equal(pace_cost(&p, &most).attended_ns, COST_ATTENDED_NS_MAX);
    assert_in_range(learnt(&p, 0, 1000), 61, 63);
    pace_learn(&p, 0, 5);
    assert_in_range(learnt(&p, 1, 1), 61, 63);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_cost_themselves_and_what_they_attend_to),
        cmocka_unit_test(test_a_time_pays_for_the_most_rows_that_fit),
        cmocka_unit_test(test_rows_with_logits_cost_more),
        cmocka_unit_test(test_without_costs_all_rows_fit),
        cmocka_unit_test(test_the_largest_step_does_not_overflow),
        cmocka_unit_test(test_the_pace_of_steps_is_learnt),
        cmocka_unit_test(test_a_step_that_was_held_up_moves_the_pace_by_little),
        cmocka_unit_test(test_the_pace_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
