/* Requests that wait: how many, for how long, and what those who are turned away are told. */
#include "tests/lib/scheduler_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"

static void test_a_full_queue_refuses(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct sequence q = {.max_tokens = 1};
    int32_t prompt[1] = {0};
    struct scheduler_rig r;

    (void)state;
    cfg.queue_max = 2;
    scheduler_rig_open(&r, &cfg);
    scheduler_rig_submit(&r, 1, 1, 1);
    scheduler_rig_submit(&r, 1, 1, 1);
    assert_int_equal(scheduler_submit(r.scheduler, &q, prompt, 1, 0), ST_OVERLOADED);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

static void test_a_tenants_part_of_the_queue_is_bounded(void **state)
{
    struct sequence q = {.tenant = 1, .max_tokens = 1};
    struct scheduler_config cfg = scheduler_rig_roomy;
    int32_t prompt[1] = {0};
    struct scheduler_rig r;

    (void)state;
    cfg.tenant_queue_max = 2;
    scheduler_rig_open(&r, &cfg);
    scheduler_rig_submit(&r, 1, 1, 1);
    scheduler_rig_submit(&r, 1, 1, 1);
    assert_int_equal(scheduler_submit(r.scheduler, &q, prompt, 1, 0), ST_OVERLOADED);
    scheduler_rig_submit(&r, 1, 1, 2);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

static void test_retry_after_grows_with_the_queue(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    int64_t one, many;
    struct scheduler_rig r;

    (void)state;
    cfg.cost = (struct cost){.base_ns = 20000000, .row_ns = 5000000};
    scheduler_rig_open(&r, &cfg);
    assert_int_equal(scheduler_retry_after_ms(r.scheduler, 1), 1000);
    for (int i = 0; i < 4; i++)
        scheduler_rig_submit(&r, 60, 60, 1);
    one = scheduler_retry_after_ms(r.scheduler, 1);
    for (int i = 0; i < 20; i++)
        scheduler_rig_submit(&r, 60, 60, 1);
    many = scheduler_retry_after_ms(r.scheduler, 1);
    assert_true(one >= 1000 && many > one && many <= 60000);
    /* Nothing of this tenant waits. */
    assert_int_equal(scheduler_retry_after_ms(r.scheduler, 2), 1000);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

/* Requests of this length, one after the other, as the history; then what a refusal is told beside
 * a full batch and a queue. */
static int64_t retry_after_outputs_of(struct scheduler_rig *r, uint32_t n_before,
                                      uint32_t max_tokens)
{
    int64_t ms;

    while (n_before-- > 0) {
        r->n_jobs = 0;
        memset(r->jobs, 0, sizeof r->jobs);
        scheduler_rig_submit(r, 1, max_tokens, 1);
        scheduler_rig_run(r);
    }
    r->n_jobs = 0;
    memset(r->jobs, 0, sizeof r->jobs);
    for (int i = 0; i < 12; i++)
        scheduler_rig_submit(r, 1, RIG_OUTPUT_MAX, 1);
    stepper_turn(&r->stepper);
    ms = scheduler_retry_after_ms(r->scheduler, 1);
    for (uint32_t i = 0; i < r->n_jobs; i++)
        scheduler_cancel(r->scheduler, &r->jobs[i].sequence, ST_CANCELLED, 0);
    scheduler_rig_run(r);
    return ms;
}

/* Also where they grow by less than the average counts at a time. */
static void test_retry_after_follows_the_outputs_that_were(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    int64_t first, shorter, longer;
    struct scheduler_rig r;

    (void)state;
    cfg.cost = (struct cost){.base_ns = 400000000};
    scheduler_rig_open(&r, &cfg);
    first = retry_after_outputs_of(&r, 0, 1);
    shorter = retry_after_outputs_of(&r, 200, 1);
    longer = retry_after_outputs_of(&r, 200, 14);
    assert_true(first > longer && longer > 5 * shorter);
    scheduler_rig_close(&r);
}

/* Steps of 400 ms for four: 100 ms a token. With nothing learnt an output is 128 tokens. */
static void test_retry_after_counts_what_runs_as_half_done(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct scheduler_rig r;

    (void)state;
    cfg.cost = (struct cost){.base_ns = 400000000};
    scheduler_rig_open(&r, &cfg);
    for (int i = 0; i < 3; i++)
        scheduler_rig_submit(&r, 1, RIG_OUTPUT_MAX, 1);
    stepper_turn(&r.stepper);
    assert_in_range(scheduler_retry_after_ms(r.scheduler, 1), 3 * 6300, 3 * 6500);
    for (int i = 0; i < 3; i++)
        scheduler_cancel(r.scheduler, &r.jobs[i].sequence, ST_CANCELLED, 0);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

static void test_retry_after_uses_the_mean_of_the_outputs_that_were(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct scheduler_rig r;

    (void)state;
    cfg.cost = (struct cost){.base_ns = 400000000};
    scheduler_rig_open(&r, &cfg);
    (void)retry_after_outputs_of(&r, 300, 40);
    r.n_jobs = 0;
    memset(r.jobs, 0, sizeof r.jobs);
    for (int i = 0; i < 4; i++)
        scheduler_rig_submit(&r, 1, RIG_OUTPUT_MAX, 1);
    stepper_turn(&r.stepper);
    assert_in_range(scheduler_retry_after_ms(r.scheduler, 1), 4 * 1980, 4 * 2020);
    for (int i = 0; i < 4; i++)
        scheduler_cancel(r.scheduler, &r.jobs[i].sequence, ST_CANCELLED, 0);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

/* One request of theirs is served at half of the speed, however many of the others' wait: 80
 * outputs of 100 ms, twice. */
static void test_retry_after_counts_a_tenants_own_queue_at_its_share(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct scheduler_rig r;

    (void)state;
    cfg.cost = (struct cost){.base_ns = 400000000};
    scheduler_rig_open(&r, &cfg);
    for (int i = 0; i < 20; i++)
        scheduler_rig_submit(&r, 1, RIG_OUTPUT_MAX, 1);
    scheduler_rig_submit(&r, 1, RIG_OUTPUT_MAX, 2);
    assert_in_range(scheduler_retry_after_ms(r.scheduler, 2), 15900, 16100);
    assert_int_equal(scheduler_retry_after_ms(r.scheduler, 1), 60000);
    for (uint32_t i = 0; i < r.n_jobs; i++)
        scheduler_cancel(r.scheduler, &r.jobs[i].sequence, ST_CANCELLED, 0);
    scheduler_rig_close(&r);
}

/* No request has ended yet; the slowest device, and the fastest. */
static void test_retry_after_is_bounded_from_the_start(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct scheduler_rig r;

    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        cfg.cost = (struct cost){.base_ns = slow * COST_NS_MAX,
                                 .row_ns = slow * COST_NS_MAX,
                                 .attended_ns = slow * COST_ATTENDED_NS_MAX,
                                 .logits_ns = slow * COST_NS_MAX};
        scheduler_rig_open(&r, &cfg);
        assert_int_equal(scheduler_retry_after_ms(r.scheduler, 1), 1000);
        for (int i = 0; i < 30; i++)
            scheduler_rig_submit(&r, 60, 60, 1);
        stepper_turn(&r.stepper);
        assert_int_equal(scheduler_retry_after_ms(r.scheduler, 1), slow ? 60000 : 1000);
        scheduler_rig_run(&r);
        scheduler_rig_close(&r);
    }
}

static void test_a_wait_beyond_its_deadline_is_a_timeout(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct rig_sequence *runs, *waits;
    struct scheduler_rig r;

    (void)state;
    cfg.max_sequences = 1;
    scheduler_rig_open(&r, &cfg);
    runs = scheduler_rig_submit(&r, 4, 10, 1);
    r.jobs[1].sequence.queue_deadline_us = 1; /* the clock is past it */
    waits = scheduler_rig_submit(&r, 4, 10, 1);
    scheduler_rig_run(&r);
    assert_int_equal(runs->status, ST_OK);
    assert_int_equal(waits->status, ST_TIMEOUT);
    assert_int_equal(waits->n_output, 0);
    scheduler_rig_close(&r);
}

/* Else a choice would run, and be paid, beside a request that was turned away. */
static void test_choices_of_a_prompt_that_never_ran_end_with_their_leader(void **state)
{
    static const struct {
        int64_t deadline_us;
        uint64_t fail_submit_every;
        bool cancels;
        enum status status;
    } cases[] = {
        {.deadline_us = 1, .status = ST_TIMEOUT},
        {.fail_submit_every = 1, .status = ST_INTERNAL},
        {.cancels = true, .status = ST_CANCELLED},
    };
    struct rig_sequence *leader, *choice;
    struct scheduler_rig r;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scheduler_rig_open(&r, &scheduler_rig_roomy);
        fake_device_script.fail_submit_every = cases[i].fail_submit_every;
        r.jobs[0].sequence.queue_deadline_us = cases[i].deadline_us;
        leader = scheduler_rig_submit(&r, 20, 5, 1);
        choice = scheduler_rig_submit_like(&r, leader, &leader->sequence);
        if (cases[i].cancels)
            scheduler_cancel(r.scheduler, &leader->sequence, ST_CANCELLED, 0);
        scheduler_rig_run(&r);
        assert_int_equal(leader->status, cases[i].status);
        assert_int_equal(choice->status, cases[i].status);
        assert_int_equal(choice->n_output, 0);
        scheduler_rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_full_queue_refuses),
        cmocka_unit_test(test_a_tenants_part_of_the_queue_is_bounded),
        cmocka_unit_test(test_retry_after_grows_with_the_queue),
        cmocka_unit_test(test_retry_after_follows_the_outputs_that_were),
        cmocka_unit_test(test_retry_after_counts_what_runs_as_half_done),
        cmocka_unit_test(test_retry_after_uses_the_mean_of_the_outputs_that_were),
        cmocka_unit_test(test_retry_after_counts_a_tenants_own_queue_at_its_share),
        cmocka_unit_test(test_retry_after_is_bounded_from_the_start),
        cmocka_unit_test(test_a_wait_beyond_its_deadline_is_a_timeout),
        cmocka_unit_test(test_choices_of_a_prompt_that_never_ran_end_with_their_leader),
    };

    log_init("test", LOG_ERROR + 1); /* failed steps are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
