/* Who gets how much, and when, on the simulated device: the bounds of docs/scheduling.md. */
#include "tests/lib/service_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

/* Every class, with waits that lift some requests and not others, and with waits that lift all. */
static const struct service_case cases[] = {
    {.depth = 1},
    {.depth = 2},
    {.depth = 1, .priority = 1, .age_up_us = 100000},
    {.depth = 1, .priority = 1, .age_up_us = 2000000},
    {.depth = 2, .priority = 1, .age_up_us = 300000},
    {.depth = 1, .priority = 2, .age_up_us = 300000},
    {.depth = 2, .priority = 2, .age_up_us = 1000000},
};
#define N_CASES (sizeof cases / sizeof cases[0])

static int64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? (int64_t)(a - b) : (int64_t)(b - a);
}

/* Two tenants that always have requests waiting: one many of long prompts, one a few of long
 * outputs. Both begin with nothing, so that the bound of docs/scheduling.md holds for what each has
 * had. */
static void backlogged(const struct service_case *c, uint64_t seed)
{
    int64_t most = 0, bound;
    struct simulation sim;

    service_rig_open_shared(&sim, c, 200, seed);
    bound = service_rig_balance(&sim.cfg);
    for (int i = 0; i < 4000; i++) {
        while (service_rig_live(&sim, 0) < 150)
            service_rig_submit(&sim, 0, 100 + sim_random(&sim, 80), 1 + sim_random(&sim, 10));
        while (service_rig_live(&sim, 1) < 24)
            service_rig_submit(&sim, 1, 1 + sim_random(&sim, 20), 40 + sim_random(&sim, 100));
        assert_true(sim_turn(&sim));
        most =
            distance(sim.work[0], sim.work[1]) > most ? distance(sim.work[0], sim.work[1]) : most;
    }
    assert_true(most <= bound / 10); /* as the page says */
    assert_true(sim.work[0] > 8 * (uint64_t)bound);
    service_rig_close(&sim);
}

static void test_backlogged_tenants_stay_within_the_bound(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            backlogged(&cases[i], seed);
}

/* A tenant that ran alone, with nothing waiting, is followed by one that was idle: that one gets no
 * credit for the time, and is never ahead by more than a request. */
static void after_idle(const struct service_case *c)
{
    uint64_t alone;
    int64_t most = 0;
    struct simulation sim;

    service_rig_open_shared(&sim, c, 64, 5);
    for (uint32_t i = 0; i < service_rig_shared.max_sequences; i++)
        service_rig_submit(&sim, 0, 5, 190);
    for (int i = 0; i < 150; i++)
        assert_true(sim_turn(&sim));
    alone = sim.work[0];
    for (int i = 0; i < 400; i++) {
        for (uint64_t tenant = 2; tenant-- > 0 && (tenant == 1 || i > 0);)
            while (service_rig_live(&sim, tenant) < 24)
                service_rig_submit(&sim, tenant, 1 + sim_random(&sim, 20),
                                   40 + sim_random(&sim, 100));
        assert_true(sim_turn(&sim));
        if ((int64_t)sim.work[1] - (int64_t)(sim.work[0] - alone) > most)
            most = (int64_t)sim.work[1] - (int64_t)(sim.work[0] - alone);
    }
    assert_true(most <= service_rig_shared.max_context);
    service_rig_close(&sim);
}

static void test_one_that_was_idle_gets_no_more_than_the_bound(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++)
        after_idle(&cases[i]);
}

static void test_weights_1_and_3_give_1_and_3_of_the_service(void **state)
{
    struct simulation sim;

    (void)state;
    service_rig_open_shared(&sim, &cases[0], 64, 7);
    for (int i = 0; i < 6000; i++) {
        for (uint64_t tenant = 0; tenant < 2; tenant++)
            while (service_rig_live(&sim, tenant) < 24) {
                struct sim_job *j = sim_job(&sim);
                enum status status;

                j->sequence.tenant = tenant;
                j->sequence.weight = tenant == 0 ? 1000 : 3000;
                j->sequence.max_tokens = 1 + sim_random(&sim, 60);
                sim_prompt(j, 1 + sim_random(&sim, 100), 0, 0);
                assert_true(sim_submit(j, &status));
            }
        assert_true(sim_turn(&sim));
    }
    assert_in_range(sim.work[1] * 100 / sim.work[0], 285, 315);
    service_rig_close(&sim);
}

static void under_flood(const struct service_case *c, uint64_t seed)
{
    struct sim_job *victim;
    struct simulation sim;
    uint32_t n_prompt;
    int64_t arrived;

    service_rig_open_shared(&sim, c, 140, seed);
    for (int i = 0; i < 120; i++)
        service_rig_submit(&sim, 0, 20 + sim_random(&sim, 150), 20);
    for (uint32_t i = 30 + sim_random(&sim, 60); i > 0; i--)
        assert_true(sim_turn(&sim));
    n_prompt = 1 + sim_random(&sim, 100);
    arrived = sim_now_us(&sim);
    victim = service_rig_submit(&sim, 1, n_prompt, 1);
    while (victim->first_token_us == 0)
        assert_true(sim_turn(&sim));
    assert_true(victim->first_token_us - arrived <= service_rig_first_token_us(n_prompt));
    service_rig_close(&sim);
}

static void test_a_flood_moves_anothers_first_token_by_a_step_and_a_preemption(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++)
        for (uint64_t seed = 1; seed <= 60; seed++)
            under_flood(&cases[i], seed);
}

/* Whose long outputs have all places gives way as well: only the share rule of room.c asks it to.
 */
static void under_long_outputs(const struct service_case *c, uint64_t seed)
{
    struct sim_job *victim;
    struct simulation sim;
    uint32_t n_prompt;
    int64_t arrived;

    service_rig_open_shared(&sim, c, 140, seed);
    for (int i = 0; i < 120; i++)
        service_rig_submit(&sim, 0, 1 + sim_random(&sim, 8), 150 + sim_random(&sim, 40));
    for (uint32_t i = 60 + sim_random(&sim, 80); i > 0; i--)
        assert_true(sim_turn(&sim));
    n_prompt = 1 + sim_random(&sim, 100);
    arrived = sim_now_us(&sim);
    victim = service_rig_submit(&sim, 1, n_prompt, 1);
    while (victim->first_token_us == 0)
        assert_true(sim_turn(&sim));
    assert_true(victim->first_token_us - arrived <= service_rig_first_token_us(n_prompt));
    service_rig_close(&sim);
}

static void test_long_outputs_give_way_as_well(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_CASES; i++)
        for (uint64_t seed = 1; seed <= 100; seed++)
            under_long_outputs(&cases[i], seed);
}

/* ---- ten thousand ---- */

static void mixed_request(struct simulation *sim, uint64_t *shape)
{
    uint64_t tokens = sim->random;
    struct sim_job *j = sim_job(sim);
    enum status status;
    uint32_t n, common;

    sim->random = *shape;
    j->sequence.tenant = sim_random(sim, 4);
    j->sequence.adapter = sim_random(sim, SIM_ADAPTERS);
    j->sequence.max_tokens = sim_random(sim, 40);
    j->sequence.masked = sim_random(sim, 8) == 0;
    j->stops = sim_random(sim, 2) == 0;
    n = 1 + sim_random(sim, 120);
    common = sim_random(sim, 64);
    *shape = sim->random;
    sim->random = tokens;
    sim_prompt(j, n, common, 0);
    assert_true(sim_submit(j, &status));
}

/* Simulated time for a thousand requests whose shapes come from the same seed. */
static int64_t thousand(struct simulation *sim, uint64_t shape)
{
    int64_t from = sim_now_us(sim);
    uint32_t submitted = 0;
    uint64_t ended = sim->n_ended;

    while (sim->n_ended - ended < 1000) {
        uint32_t live = service_rig_live(sim, 0) + service_rig_live(sim, 1) +
                        service_rig_live(sim, 2) + service_rig_live(sim, 3);
        struct sim_job *j = &sim->jobs[sim_random(sim, sim->n_jobs)];

        for (; live < 24 && submitted < 1000; live++, submitted++)
            mixed_request(sim, &shape);
        if (j->is_live && j->n_ends == 0 && sim_random(sim, 40) == 0)
            scheduler_cancel(sim->scheduler, &j->sequence, ST_CANCELLED, sim_now_us(sim));
        sim_turn(sim);
    }
    return sim_now_us(sim) - from;
}

static void test_the_last_thousand_of_ten_is_as_quick_as_the_first(void **state)
{
    struct scheduler_stats st;
    struct simulation sim;
    int64_t first = 0, last = 0;

    (void)state;
    service_rig_open_shared(&sim, &cases[1], 40, 11);
    for (int i = 0; i < 10; i++) {
        last = thousand(&sim, 5);
        first = i == 0 ? last : first;
    }
    scheduler_stats(sim.scheduler, &st);
    sim_run_all(&sim);
    assert_int_equal(sim.n_ended, 10000);
    assert_true(st.prefix_hit_tokens > 0);
    assert_in_range(last * 100 / first, 95, 105);
    sim_close(&sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backlogged_tenants_stay_within_the_bound),
        cmocka_unit_test(test_one_that_was_idle_gets_no_more_than_the_bound),
        cmocka_unit_test(test_weights_1_and_3_give_1_and_3_of_the_service),
        cmocka_unit_test(test_a_flood_moves_anothers_first_token_by_a_step_and_a_preemption),
        cmocka_unit_test(test_long_outputs_give_way_as_well),
        cmocka_unit_test(test_the_last_thousand_of_ten_is_as_quick_as_the_first),
    };

    log_init("test", LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
