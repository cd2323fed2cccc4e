#include "engine/core/calibrate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/lib/fake_device.h"

static enum status measure(const struct calibrate_limits *l, uint64_t fail_every, struct cost *out)
{
    const struct device_config cfg = {.max_rows = l->max_rows,
                                      .max_sequences = 1,
                                      .max_context = l->max_context,
                                      .n_pages = l->n_pages};
    struct device *d;
    enum status s;

    fake_device_script = (struct fake_device_script){.fail_complete_every = fail_every};
    assert_int_equal(fake_device_ops.open(&cfg, &d, NULL), ST_OK);
    s = calibrate(d, l, out);
    d->ops->close(d);
    fake_device_script = (struct fake_device_script){0};
    return s;
}

static void check(const struct calibrate_limits *l)
{
    struct cost c = {.base_ns = UINT64_MAX};

    assert_int_equal(measure(l, 0, &c), ST_OK);
    assert_true(c.base_ns <= COST_NS_MAX && c.row_ns <= COST_NS_MAX && c.logits_ns <= COST_NS_MAX);
    assert_true(c.attended_ns <= COST_ATTENDED_NS_MAX);
}

/* The fake device asserts that no step goes beyond what it was opened with. */
static void test_steps_stay_within_the_device(void **state)
{
    (void)state;
    check(&(struct calibrate_limits){.max_rows = 96, .max_context = 4096, .n_pages = 300});
    check(&(struct calibrate_limits){.max_rows = 96, .max_context = 40, .n_pages = 3});
    check(&(struct calibrate_limits){.max_rows = 2, .max_context = 8, .n_pages = 1});
    check(&(struct calibrate_limits){.max_rows = 2, .max_context = 1, .n_pages = 1});
}

static void test_a_device_that_fails_is_reported(void **state)
{
    const struct calibrate_limits l = {.max_rows = 96, .max_context = 400, .n_pages = 30};
    struct cost c;

    (void)state;
    for (uint64_t every = 1; every <= 4; every++)
        assert_int_equal(measure(&l, every, &c), ST_INTERNAL);
}

/* With no cost at all a step would take every prompt row there is. */
static void test_a_speed_that_can_not_be_measured_is_taken_to_be_low(void **state)
{
    const struct calibrate_limits l = {
        .max_rows = 96, .max_context = 400, .n_pages = 30, .max_sequences = 16, .step_us = 64000};
    struct cost c = {0};

    (void)state;
    assert_int_equal(measure(&l, 1, &c), ST_INTERNAL);
    assert_int_equal(cost_rows_in(&c, 0, 1000, 1000, 64000000), 32);
}

/* ---- the fit ---- */

/* What a device of this cost takes, undisturbed. */
static struct calibrate_times times_of(const struct cost *c)
{
    struct calibrate_times t = {.n_rounds = 7, .n_rows = 8, .position = 1000};

    for (int i = 0; i < 7; i++) {
        t.ns[CALIBRATE_ONE][i] = (int64_t)(c->base_ns + cost_rows_ns(c, 0, 1));
        t.ns[CALIBRATE_SAMPLED][i] = t.ns[CALIBRATE_ONE][i] + (int64_t)c->logits_ns;
        t.ns[CALIBRATE_CHUNK][i] = (int64_t)(c->base_ns + cost_rows_ns(c, 0, 8));
        t.ns[CALIBRATE_DEEP][i] = (int64_t)(c->base_ns + cost_rows_ns(c, 1000, 8));
    }
    return t;
}

static const struct cost usual = {
    .base_ns = 10000000, .row_ns = 1000000, .attended_ns = 500, .logits_ns = 300000};

static void assert_usual(const struct cost *c)
{
    assert_in_range(c->base_ns, 9990000, 10010000);
    assert_in_range(c->row_ns, 999000, 1010000);
    assert_in_range(c->attended_ns, 495, 505);
    assert_in_range(c->logits_ns, 299000, 301000);
}

static void test_steps_that_others_held_up_do_not_count(void **state)
{
    struct calibrate_times t = times_of(&usual);
    struct cost c = calibrate_fit(&t);

    (void)state;
    assert_usual(&c);
    for (int step = 0; step < CALIBRATE_STEPS; step++)
        for (int i = 0; i < 3; i++)
            t.ns[step][(step + 2 * i) % 7] *= 2 + i;
    c = calibrate_fit(&t);
    assert_usual(&c);
}

/* No step would be bounded by its rows. */
static void test_a_row_that_costs_nothing_is_not_believed(void **state)
{
    struct calibrate_times t = times_of(&usual);
    struct cost c;

    (void)state;
    for (int i = 0; i < 7; i++)
        t.ns[CALIBRATE_CHUNK][i] = t.ns[CALIBRATE_ONE][i] / 2;
    c = calibrate_fit(&t);
    assert_in_range(c.row_ns, 11000000 / 256, 11100000 / 256);
    assert_true(c.base_ns > 10000000);
    t = (struct calibrate_times){.n_rounds = 1, .n_rows = 2};
    assert_true(calibrate_fit(&t).row_ns > 0);
}

static void test_attention_that_costs_more_than_it_can_is_not_believed(void **state)
{
    struct calibrate_times t = times_of(&usual);
    struct cost c;

    (void)state;
    for (int i = 0; i < 7; i++)
        t.ns[CALIBRATE_DEEP][i] *= 20;
    c = calibrate_fit(&t);
    assert_in_range(c.attended_ns, 1000000 / 128, 1010000 / 128);
    for (int i = 0; i < 7; i++)
        t.ns[CALIBRATE_DEEP][i] = 0;
    assert_int_equal(calibrate_fit(&t).attended_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_stay_within_the_device),
        cmocka_unit_test(test_a_device_that_fails_is_reported),
        cmocka_unit_test(test_steps_that_others_held_up_do_not_count),
        cmocka_unit_test(test_a_row_that_costs_nothing_is_not_believed),
        cmocka_unit_test(test_attention_that_costs_more_than_it_can_is_not_believed),
        cmocka_unit_test(test_a_speed_that_can_not_be_measured_is_taken_to_be_low),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
