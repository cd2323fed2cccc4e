/* Who is there, and when the engine last got on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/core/attendance.h"
#include "engine/core/progress.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define HOUR_MS 3600000

static void without_a_gateway_it_ends_after_the_hour(void **state)
{
    struct attendance a;

    (void)state;
    attendance_init(&a, HOUR_MS, 1000);
    assert_int_equal(attendance_due_ms(&a), 1000 + HOUR_MS);
    assert_false(attendance_is_over(&a, NULL, 0, 999 + HOUR_MS));
    assert_true(attendance_is_over(&a, NULL, 0, 1000 + HOUR_MS));
}

static void one_that_leaves_waits_for_its_last_gateway_alone(void **state)
{
    struct conn gateway = {.since_ms = 0, .greeted = true},
                monitor = {.greeted = true, .is_monitor = true};
    struct conn *conns[] = {&monitor, &gateway};
    struct attendance a;

    (void)state;
    attendance_init(&a, 0, 0);
    a.is_leaving = true;
    assert_false(attendance_is_over(&a, conns, 2, 1));
    assert_true(attendance_is_over(&a, conns, 1, 1));
    a.is_leaving = false;
    assert_false(attendance_is_over(&a, conns, 1, 1));
}

static void zero_means_never(void **state)
{
    struct attendance a;

    (void)state;
    attendance_init(&a, 0, 0);
    assert_true(attendance_due_ms(&a) == INT64_MAX);
    assert_false(attendance_is_over(&a, NULL, 0, INT64_MAX - 1));
}

static void a_gateway_puts_the_end_off(void **state)
{
    struct conn c = {.since_ms = 0, .greeted = true};
    struct conn *conns[] = {&c};
    struct attendance a;

    (void)state;
    attendance_init(&a, HOUR_MS, 0);
    assert_false(attendance_is_over(&a, conns, 1, 5 * HOUR_MS));
    assert_int_equal(attendance_due_ms(&a), 6 * HOUR_MS);
    assert_false(attendance_is_over(&a, NULL, 0, 6 * HOUR_MS - 1));
    assert_true(attendance_is_over(&a, NULL, 0, 6 * HOUR_MS));
}

/* Also one that greets in the last moment. */
static void a_gateway_that_just_came_is_not_left(void **state)
{
    struct conn c = {.since_ms = HOUR_MS - 1, .greeted = true};
    struct conn *conns[] = {&c};
    struct attendance a;

    (void)state;
    attendance_init(&a, HOUR_MS, 0);
    assert_false(attendance_is_over(&a, conns, 1, HOUR_MS));
}

/* A monitor has greeted before it says what it is: asked every minute, it would keep an engine for
 * ever. */
static void monitors_do_not_count(void **state)
{
    struct conn c = {.greeted = true};
    struct conn *conns[] = {&c};
    struct attendance a;

    (void)state;
    attendance_init(&a, HOUR_MS, 0);
    for (int64_t now_ms = 0; now_ms < HOUR_MS; now_ms += 60000) {
        c = (struct conn){.since_ms = now_ms, .greeted = true};
        assert_false(attendance_is_over(&a, conns, 1, now_ms));
        c.is_monitor = true;
        assert_false(attendance_is_over(&a, conns, 1, now_ms + 10));
    }
    assert_true(attendance_is_over(&a, conns, 1, HOUR_MS));
}

static void who_does_not_greet_is_let_go(void **state)
{
    struct conn late = {.since_ms = 0}, early = {.since_ms = 1000}, greeted = {.greeted = true};
    struct conn *conns[] = {&late, &early, &greeted};
    struct attendance a;

    (void)state;
    attendance_init(&a, 0, 0);
    (void)attendance_is_over(&a, conns, COUNT_OF(conns), ATTENDANCE_GREETING_MS - 1);
    assert_false(late.broken);
    (void)attendance_is_over(&a, conns, COUNT_OF(conns), ATTENDANCE_GREETING_MS);
    assert_true(late.broken);
    assert_false(early.broken);
    assert_false(greeted.broken);
}

/* ---- progress ---- */

static void turn(struct progress *p, uint64_t steps, bool has_work, int64_t now_us)
{
    progress_begin(p, now_us);
    progress_note(p, steps, has_work, now_us);
}

static void turns_without_a_step_are_no_progress_while_work_waits(void **state)
{
    struct progress p = {0};

    (void)state;
    turn(&p, 7, true, 100);
    for (int64_t now_us = 200; now_us <= 1000; now_us += 100)
        turn(&p, 7, true, now_us);
    assert_int_equal(p.last_us, 100);
    turn(&p, 8, true, 1100);
    assert_int_equal(p.last_us, 1100);
}

static void work_that_comes_after_a_long_sleep_has_not_waited(void **state)
{
    struct progress p = {0};

    (void)state;
    turn(&p, 7, false, 100);
    turn(&p, 7, true, 60000000);
    assert_int_equal(p.last_us, 60000000);
}

static void without_work_nothing_is_late(void **state)
{
    struct progress p = {0};

    (void)state;
    turn(&p, 7, true, 100);
    turn(&p, 7, false, 900);
    assert_int_equal(p.last_us, 900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_gateway_it_ends_after_the_hour),
        cmocka_unit_test(one_that_leaves_waits_for_its_last_gateway_alone),
        cmocka_unit_test(zero_means_never),
        cmocka_unit_test(a_gateway_puts_the_end_off),
        cmocka_unit_test(a_gateway_that_just_came_is_not_left),
        cmocka_unit_test(monitors_do_not_count),
        cmocka_unit_test(who_does_not_greet_is_let_go),
        cmocka_unit_test(turns_without_a_step_are_no_progress_while_work_waits),
        cmocka_unit_test(work_that_comes_after_a_long_sleep_has_not_waited),
        cmocka_unit_test(without_work_nothing_is_late),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
