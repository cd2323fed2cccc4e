/* The last state that an engine told, as other threads read it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/backend/stats_cell.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static const struct engine_stats told = {.running = 3,
                                         .waiting = 4,
                                         .pages_used = 5,
                                         .pages_total = 100,
                                         .steps = 10,
                                         .prompt_tokens = 11,
                                         .output_tokens = 12,
                                         .preemptions = 13,
                                         .prefix_query_tokens = 14,
                                         .prefix_hit_tokens = 15,
                                         .not_finite = 16,
                                         .rows_max = 17,
                                         .last_step_age_ms = 20};

static void assert_counters(const struct engine_stats *s)
{
    assert_int_equal(s->steps, 10);
    assert_int_equal(s->prompt_tokens, 11);
    assert_int_equal(s->output_tokens, 12);
    assert_int_equal(s->preemptions, 13);
    assert_int_equal(s->prefix_query_tokens, 14);
    assert_int_equal(s->prefix_hit_tokens, 15);
    assert_int_equal(s->not_finite, 16);
    assert_int_equal(s->rows_max, 17);
}

static void test_what_was_told_is_read(void **state)
{
    struct stats_cell c;
    struct engine_stats s;

    (void)state;
    stats_cell_init(&c);
    stats_cell_connect(&c, 77, "cpu", "build");
    stats_cell_update(&c, &told, 1000);
    stats_cell_read(&c, 1005, &s);
    assert_true(s.connected);
    assert_int_equal(s.pid, 77);
    assert_string_equal(s.device, "cpu");
    assert_int_equal(s.running, 3);
    assert_int_equal(s.waiting, 4);
    assert_int_equal(s.pages_used, 5);
    assert_int_equal(s.pages_total, 100);
    assert_int_equal(s.last_step_age_ms, 25);
    assert_counters(&s);
    stats_cell_disconnect(&c);
    stats_cell_dispose(&c);
}

static void test_with_the_last_link_gauges_go_and_counters_stay(void **state)
{
    struct stats_cell c;
    struct engine_stats s;

    (void)state;
    stats_cell_init(&c);
    stats_cell_connect(&c, 77, "cpu", "build");
    stats_cell_connect(&c, 77, "cpu", "build");
    stats_cell_update(&c, &told, 1000);
    stats_cell_disconnect(&c);
    stats_cell_read(&c, 1000, &s);
    assert_int_equal(s.running, 3);
    stats_cell_disconnect(&c);
    stats_cell_read(&c, 1000, &s);
    assert_false(s.connected);
    assert_int_equal(s.running, 0);
    assert_int_equal(s.waiting, 0);
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(s.pages_total, 0);
    assert_int_equal(s.last_step_age_ms, -1);
    assert_counters(&s);
    stats_cell_dispose(&c);
}

static void test_an_absence_is_known_until_an_engine_greets(void **state)
{
    struct stats_cell c;
    struct engine_stats s;

    (void)state;
    stats_cell_init(&c);
    assert_true(stats_cell_refuse(&c, "stopped"));
    assert_false(stats_cell_refuse(&c, "stopped"));
    stats_cell_read(&c, 0, &s);
    assert_string_equal(s.absence, "stopped");
    stats_cell_connect(&c, 77, "cpu", "build");
    stats_cell_read(&c, 0, &s);
    assert_string_equal(s.absence, "");
    /* One link may still be refused while another is served. */
    assert_true(stats_cell_refuse(&c, "stopped"));
    stats_cell_read(&c, 0, &s);
    assert_string_equal(s.absence, "");
    stats_cell_disconnect(&c);
    stats_cell_dispose(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_told_is_read),
        cmocka_unit_test(test_with_the_last_link_gauges_go_and_counters_stay),
        cmocka_unit_test(test_an_absence_is_known_until_an_engine_greets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
