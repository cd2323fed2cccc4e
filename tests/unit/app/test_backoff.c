/* How long a died process waits for its next start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "app/supervise/backoff.h"

#include <cmocka.h>

static void delays_double_from_100_ms_to_10_s(void **state)
{
    static const int64_t expected[] = {100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};
    struct backoff b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(backoff_next(&b, 5), expected[i]);
    assert_int_equal(b.deaths, 9);
}

static void thirty_healthy_seconds_begin_anew(void **state)
{
    struct backoff b = {0};

    (void)state;
    for (int i = 0; i < 6; i++)
        (void)backoff_next(&b, 5);
    assert_int_equal(backoff_next(&b, BACKOFF_HEALTHY_MS - 1), 6400);
    assert_int_equal(backoff_next(&b, BACKOFF_HEALTHY_MS), 100);
    assert_int_equal(b.deaths, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delays_double_from_100_ms_to_10_s),
        cmocka_unit_test(thirty_healthy_seconds_begin_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
