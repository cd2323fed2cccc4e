/* The wheel of a loop's timers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "api/timer_wheel.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

struct shot {
    struct loop_timer timer;
    struct timer_wheel *wheel;
    struct loop_timer *stops; /* stopped when this fires */
    int64_t now_ms, again_ms;
    int fired;
};

static void on_timer(void *arg)
{
    struct shot *s = arg;

    s->fired++;
    if (s->stops != NULL)
        timer_wheel_stop(s->stops);
    if (s->again_ms >= 0)
        timer_wheel_start(s->wheel, &s->timer, s->now_ms, s->again_ms);
}

static struct timer_wheel wheel;

static void shot_init(struct shot *s)
{
    *s = (struct shot){.timer.on_timer = on_timer, .wheel = &wheel, .again_ms = -1};
    s->timer.arg = s;
}

static int setup(void **state)
{
    (void)state;
    timer_wheel_init(&wheel, 1000000);
    return 0;
}

static void fires_when_due_and_not_before(void **state)
{
    struct shot s;

    (void)state;
    shot_init(&s);
    timer_wheel_start(&wheel, &s.timer, 1000000, 37);
    timer_wheel_run(&wheel, 1000036);
    assert_int_equal(s.fired, 0);
    timer_wheel_run(&wheel, 1000037);
    assert_int_equal(s.fired, 1);
    timer_wheel_run(&wheel, 1000100);
    assert_int_equal(s.fired, 1);
}

static void waits_exactly_until_the_next(void **state)
{
    struct shot near, far;

    (void)state;
    shot_init(&near);
    shot_init(&far);
    assert_int_equal(timer_wheel_wait_ms(&wheel, 1000000, 500), 500);
    timer_wheel_start(&wheel, &far.timer, 1000000, 100000);
    timer_wheel_start(&wheel, &near.timer, 1000000, 20);
    assert_int_equal(timer_wheel_wait_ms(&wheel, 1000000, 500), 20);
    assert_int_equal(timer_wheel_wait_ms(&wheel, 1000050, 500), 0);
    timer_wheel_run(&wheel, 1000050);
    assert_int_equal(timer_wheel_wait_ms(&wheel, 1000050, 500), 500);
    timer_wheel_stop(&far.timer);
}

static void fires_what_lies_many_turns_away(void **state)
{
    const int64_t turn_ms = WHEEL_SLOTS * WHEEL_SLOT_MS;
    struct shot s;

    (void)state;
    shot_init(&s);
    timer_wheel_start(&wheel, &s.timer, 1000000, 5 * turn_ms + 3);
    for (int64_t t = 0; t < 5 * turn_ms + 3; t += 11)
        timer_wheel_run(&wheel, 1000000 + t);
    assert_int_equal(s.fired, 0);
    timer_wheel_run(&wheel, 1000000 + 5 * turn_ms + 3);
    assert_int_equal(s.fired, 1);
}

static void fires_everything_after_a_long_silence(void **state)
{
    struct shot s[50];

    (void)state;
    for (int i = 0; i < 50; i++) {
        shot_init(&s[i]);
        timer_wheel_start(&wheel, &s[i].timer, 1000000, i * 997);
    }
    timer_wheel_run(&wheel, 1000000 + 3600000);
    for (int i = 0; i < 50; i++)
        assert_int_equal(s[i].fired, 1);
    assert_int_equal(timer_wheel_wait_ms(&wheel, 4600000, 77), 77);
}

static void a_stopped_timer_never_fires_even_from_a_callback(void **state)
{
    struct shot first, second;

    (void)state;
    shot_init(&first);
    shot_init(&second);
    first.stops = &second.timer;
    timer_wheel_start(&wheel, &first.timer, 1000000, 5);
    timer_wheel_start(&wheel, &second.timer, 1000000, 5);
    timer_wheel_run(&wheel, 1000010);
    assert_int_equal(first.fired, 1);
    assert_int_equal(second.fired, 0);
    timer_wheel_stop(&second.timer);
}

static void a_run_ends_though_a_timer_starts_itself_again(void **state)
{
    struct shot s;

    (void)state;
    shot_init(&s);
    s.again_ms = 0;
    s.now_ms = 1000000;
    timer_wheel_start(&wheel, &s.timer, 1000000, 0);
    timer_wheel_run(&wheel, 1000000);
    assert_int_equal(s.fired, 1);
    assert_int_equal(timer_wheel_wait_ms(&wheel, 1000000, 500), 0);
    timer_wheel_run(&wheel, 1000000);
    assert_int_equal(s.fired, 2);
    timer_wheel_stop(&s.timer);
}

static void starting_again_moves_the_due_time(void **state)
{
    struct shot s;

    (void)state;
    shot_init(&s);
    timer_wheel_start(&wheel, &s.timer, 1000000, 10);
    timer_wheel_start(&wheel, &s.timer, 1000000, 1000);
    timer_wheel_run(&wheel, 1000500);
    assert_int_equal(s.fired, 0);
    timer_wheel_run(&wheel, 1001000);
    assert_int_equal(s.fired, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(fires_when_due_and_not_before, setup),
        cmocka_unit_test_setup(waits_exactly_until_the_next, setup),
        cmocka_unit_test_setup(fires_what_lies_many_turns_away, setup),
        cmocka_unit_test_setup(fires_everything_after_a_long_silence, setup),
        cmocka_unit_test_setup(a_stopped_timer_never_fires_even_from_a_callback, setup),
        cmocka_unit_test_setup(a_run_ends_though_a_timer_starts_itself_again, setup),
        cmocka_unit_test_setup(starting_again_moves_the_due_time, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
