/* What a step takes, by prediction and in truth, on the simulated device. */
#include "tests/lib/service_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

/* A row with a score has logits to pay for. */
static void test_scored_rows_count_in_the_budget(void **state)
{
    struct scheduler_config cfg = service_rig_shared;
    const struct scheduled_step *t;
    struct simulation sim;
    struct sim_job *j;
    enum status status;
    uint64_t ns;

    (void)state;
    cfg.cost = (struct cost){.base_ns = 1000000, .row_ns = 100000, .logits_ns = 1000000};
    sim_open(&sim, &cfg, 8, 5);
    j = sim_job(&sim);
    j->sequence.sampling.want_prompt_logprobs = true;
    sim_prompt(j, 180, 0, 0);
    assert_true(sim_submit(j, &status));
    t = scheduler_build(sim.scheduler, 0);
    ns = cfg.cost.base_ns + t->step.n_rows * cfg.cost.row_ns;
    for (uint32_t i = 0; i < t->step.n_rows; i++)
        ns += t->step.rows[i].want != ROW_NOTHING ? cfg.cost.logits_ns : 0;
    assert_true(ns <= 3 * SERVICE_STEP_US * 1000 / 2);
    scheduler_fail(sim.scheduler, scheduler_oldest(sim.scheduler), 0);
    sim_close(&sim);
}

/* A device whose steps take other than was measured; prompts that never end. The mean of the steps
 * after `warm` of them. */
static int64_t mean_step_us(const struct fake_device_script *takes, uint32_t depth, int warm)
{
    struct scheduler_config cfg = service_rig_shared;
    struct simulation sim;
    int64_t from;

    cfg.depth = depth;
    cfg.cost.attended_ns = 500;
    service_rig_open(&sim, &cfg, 140, 3);
    fake_device_script.step_us = takes->step_us;
    fake_device_script.row_us = takes->row_us;
    fake_device_script.attended_ns = takes->attended_ns;
    for (int i = 0; i < 130; i++)
        service_rig_submit(&sim, (uint64_t)i % 3, 190, 5);
    for (int i = 0; i < warm; i++)
        assert_true(sim_turn(&sim));
    from = sim_now_us(&sim);
    for (int i = 0; i < 100; i++)
        assert_true(sim_turn(&sim));
    from = sim_now_us(&sim) - from;
    service_rig_close(&sim);
    return from / 100;
}

static void test_steps_keep_their_time_at_another_pace_than_was_measured(void **state)
{
    /* Where rows cost half, the most rows of a step and the decodes bound it before its time. */
    static const struct {
        struct fake_device_script takes;
        uint32_t least, most; /* percent of SERVICE_STEP_US */
    } cases[] = {
        {{.step_us = 2000, .row_us = SERVICE_ROW_US, .attended_ns = 500}, 85, 115},
        {{.step_us = 4000, .row_us = 2 * SERVICE_ROW_US, .attended_ns = 1000}, 85, 115},
        {{.step_us = 1000, .row_us = SERVICE_ROW_US / 2, .attended_ns = 250}, 70, 115},
        /* One coefficient is wrong. */
        {{.step_us = 6000, .row_us = SERVICE_ROW_US, .attended_ns = 500}, 75, 125},
        {{.step_us = 2000, .row_us = 4 * SERVICE_ROW_US, .attended_ns = 500}, 75, 125},
        {{.step_us = 2000, .row_us = SERVICE_ROW_US, .attended_ns = 8000}, 75, 125},
        /* All are, each by another factor. */
        {{.step_us = 8000, .row_us = 0, .attended_ns = 4000}, 75, 125},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint32_t depth = 1; depth <= 2; depth++) {
            int64_t us = mean_step_us(&cases[i].takes, depth, 40);

            assert_in_range(us * 100 / SERVICE_STEP_US, cases[i].least, cases[i].most);
        }
}

/* Every step costs more than a step may take, as far as is known: small chunks of it would only be
 * paid for more often. */
static uint32_t chunk_beside(uint32_t n_others, uint64_t row_ns)
{
    struct scheduler_config cfg = service_rig_shared;
    const struct scheduled_step *t;
    struct simulation sim;
    struct sim_job *j;
    uint32_t n = 0;

    cfg.cost.row_ns = row_ns;
    cfg.cost.base_ns = 3ull * SERVICE_STEP_US * 1000;
    service_rig_open(&sim, &cfg, 8, 5);
    for (uint32_t i = 0; i < n_others; i++)
        service_rig_submit(&sim, 1, 1, 50);
    assert_int_equal(sim_turn(&sim), n_others > 0);
    j = service_rig_submit(&sim, 0, 190, 1);
    t = scheduler_build(sim.scheduler, sim_now_us(&sim));
    for (uint32_t i = 0; i < t->n_entries; i++)
        n += t->entries[i].sequence == &j->sequence ? t->entries[i].n_rows : 0;
    scheduler_fail(sim.scheduler, scheduler_oldest(sim.scheduler), sim_now_us(&sim));
    service_rig_close(&sim);
    return n;
}

static void test_a_prompt_that_is_alone_has_all_of_a_steps_time(void **state)
{
    (void)state;
    assert_int_equal(chunk_beside(0, 200000), 50);
}

static void test_beside_others_a_prompt_has_a_quarter_of_it_and_a_page_at_most(void **state)
{
    (void)state;
    assert_int_equal(chunk_beside(1, 200000), 12);
    assert_int_equal(chunk_beside(1, 100000), KV_PAGE_TOKENS);
    assert_int_equal(chunk_beside(1, 30000000), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scored_rows_count_in_the_budget),
        cmocka_unit_test(test_steps_keep_their_time_at_another_pace_than_was_measured),
        cmocka_unit_test(test_a_prompt_that_is_alone_has_all_of_a_steps_time),
        cmocka_unit_test(test_beside_others_a_prompt_has_a_quarter_of_it_and_a_page_at_most),
    };

    log_init("test", LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
