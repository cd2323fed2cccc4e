/* Clocks: their units, and that one of them never goes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void test_the_monotonic_one_never_goes_back(void **state)
{
    int64_t last = clock_mono_ns();

    (void)state;
    for (int i = 0; i < 100000; i++) {
        const int64_t now = clock_mono_ns();

        assert_true(now >= last);
        last = now;
    }
}

static void test_all_units_of_one_clock_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        const int64_t mono_before = clock_mono_ns() / 1000000, mono = clock_mono_ms();
        const int64_t wall_before = clock_wall_us() / 1000, wall = clock_wall_ms();

        assert_in_range(mono, mono_before, clock_mono_ns() / 1000000);
        assert_in_range(clock_mono_us() / 1000, mono, clock_mono_ns() / 1000000);
        /* The wall's may be set back meanwhile, but not by the factor between the units. */
        assert_in_range(wall, wall_before - 60000, wall_before + 60000);
    }
}

static void test_the_wall_shows_unix_time(void **state)
{
    const int64_t s = time(NULL);

    (void)state;
    assert_in_range(clock_wall_ms() / 1000, s - 60, s + 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_monotonic_one_never_goes_back),
        cmocka_unit_test(test_all_units_of_one_clock_agree),
        cmocka_unit_test(test_the_wall_shows_unix_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
