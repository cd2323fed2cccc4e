/* Priority classes on the simulated device: what is aged doesn't starve, and takes nothing from the
 * better classes beyond its tenants' shares (docs/scheduling.md). */
#include "tests/lib/service_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

/* ---- nobody starves ---- */

/* A better class that always has small requests waiting, and two requests of a worse one. */
static void under_better_class(uint32_t depth, uint32_t priority)
{
    const struct service_case c = {.depth = depth, .age_up_us = 100000};
    struct sim_job *aged[2];
    struct simulation sim;
    int64_t arrived;

    service_rig_open_shared(&sim, &c, 64, 3);
    arrived = sim_now_us(&sim);
    sim.priority = priority;
    for (int i = 0; i < 2; i++)
        aged[i] = service_rig_submit(&sim, 0, 100, 50);
    sim.priority = 0;
    while (service_rig_live(&sim, 0) > 0) {
        while (service_rig_live(&sim, 1) < 30)
            service_rig_submit(&sim, 1, 2, 2);
        assert_true(sim_turn(&sim));
        assert_true(sim_now_us(&sim) - arrived < 3000000);
    }
    assert_int_equal(aged[0]->status + aged[1]->status, 2 * ST_OK);
    service_rig_close(&sim);
}

static void test_what_has_aged_does_not_starve_under_a_better_class(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++)
        for (uint32_t priority = 1; priority < PRIORITY_CLASSES; priority++)
            under_better_class(depth, priority);
}

/* A tenant that comes into a class that has aged is first in it, and stays admitted as what the
 * class counts as: the better class doesn't take the place back. */
static void test_who_comes_into_a_class_that_has_aged_gets_on_as_well(void **state)
{
    const struct service_case c = {.depth = 1, .age_up_us = 1000000};
    struct sim_job *late = NULL;
    struct simulation sim;
    int64_t arrived = 0;

    (void)state;
    service_rig_open_shared(&sim, &c, 100, 3);
    sim.priority = 1;
    for (int i = 0; i < 40; i++)
        service_rig_submit(&sim, 0, 100, 50);
    while (late == NULL || late->n_ends == 0) {
        sim.priority = 0;
        while (service_rig_live(&sim, 1) < 30)
            service_rig_submit(&sim, 1, 2, 2);
        sim.priority = 1;
        if (late == NULL && sim_now_us(&sim) > 1200000) {
            arrived = sim_now_us(&sim);
            late = service_rig_submit(&sim, 2, 20, 20);
        }
        assert_true(sim_turn(&sim));
        assert_true(late == NULL || late->sequence.state != SEQUENCE_PREEMPTED);
    }
    assert_true(sim_now_us(&sim) - arrived < c.age_up_us);
    service_rig_close(&sim);
}

/* A long queue of another class, all of it aged: the next place that comes free is the better
 * class's, whose request is the shorter one as well. */
static void test_a_long_queue_that_has_aged_does_not_keep_out_the_better_class(void **state)
{
    const struct service_case c = {.depth = 1, .priority = 1, .age_up_us = 100000};
    struct sim_job *better;
    struct simulation sim;
    uint64_t ended;

    (void)state;
    service_rig_open_shared(&sim, &c, 200, 3);
    for (int i = 0; i < 120; i++)
        service_rig_submit(&sim, 0, 20, 40);
    while (sim.n_ended < 40)
        assert_true(sim_turn(&sim));
    sim.priority = 0;
    better = service_rig_submit(&sim, 1, 10, 1);
    ended = sim.n_ended;
    while (better->first_token_us == 0)
        assert_true(sim_turn(&sim));
    assert_true(sim.n_ended - ended <= 2 * service_rig_shared.max_sequences);
    service_rig_close(&sim);
}

/* Better requests come so often that a worse one with the only place is never done with its prompt
 * before it loses it again: none of its waits is long enough to lift it, all of them are. */
static void test_one_that_is_preempted_again_and_again_gets_on_at_last(void **state)
{
    struct scheduler_config cfg = service_rig_shared;
    struct sim_job *worse;
    struct simulation sim;
    int64_t arrived;

    (void)state;
    cfg.max_sequences = 1;
    cfg.age_up_us = 500000;
    cfg.prefix_cache = false;
    service_rig_open(&sim, &cfg, 8, 3);
    arrived = sim_now_us(&sim);
    sim.priority = 2;
    worse = service_rig_submit(&sim, 0, 190, 5);
    sim.priority = 0;
    while (worse->n_ends == 0) {
        service_rig_submit(&sim, 1, 10, 20);
        while (service_rig_live(&sim, 1) > 0)
            assert_true(sim_turn(&sim));
        for (int i = 0; i < 3 && worse->n_ends == 0; i++)
            assert_true(sim_turn(&sim));
        assert_true(sim_now_us(&sim) - arrived < 3000000);
    }
    assert_true(worse->sequence.level < worse->sequence.priority);
    service_rig_close(&sim);
}

/* ---- classes that count as the same ---- */

/* Requests of one kind that a tenant always has some of waiting. */
struct habit {
    uint64_t tenant;
    uint32_t priority, max_tokens;
};

static uint32_t live_of(const struct simulation *sim, const struct habit *h)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        const struct sequence *q = &sim->jobs[i].sequence;

        n += sim->jobs[i].is_live && q->tenant == h->tenant && q->priority == h->priority;
    }
    return n;
}

static void keep_waiting(struct simulation *sim, const struct habit *habits, uint32_t n)
{
    for (const struct habit *h = habits; h < habits + n; h++) {
        sim->priority = h->priority;
        for (uint32_t live = live_of(sim, h); live < 20; live++)
            service_rig_submit(sim, h->tenant, 10, h->max_tokens);
    }
}

/* Thousandths of all work that were tenant 0's, when all had waited for so long that all counted as
 * the best class. */
static uint64_t part_of_the_first(const struct habit *habits, uint32_t n, uint32_t n_tenants)
{
    const struct service_case c = {.depth = 1, .age_up_us = 100000};
    uint64_t all = 0, first;
    struct simulation sim;

    service_rig_open_shared(&sim, &c, 160, 3);
    for (int i = 0; i < 5000; i++) {
        keep_waiting(&sim, habits, n);
        assert_true(sim_turn(&sim));
    }
    for (uint32_t t = 0; t < n_tenants; t++)
        all += sim.work[t];
    first = sim.work[0] * 1000 / all;
    service_rig_close(&sim);
    return first;
}

/* One in the lowest class, with long outputs, beside six of the ordinary one with short ones. */
static void test_a_worse_class_gives_nobody_a_larger_share(void **state)
{
    const struct habit habits[] = {{0, 2, 150}, {1, 1, 10}, {2, 1, 10}, {3, 1, 10},
                                   {4, 1, 10},  {5, 1, 10}, {6, 1, 10}};

    (void)state;
    assert_in_range(part_of_the_first(habits, 7, 7), 1000 / 7 - 10, 1000 / 7 + 10);
}

static void test_who_asks_in_several_classes_has_one_share(void **state)
{
    static const uint32_t others[] = {0, 1, 2};

    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const struct habit habits[] = {{0, 0, 40}, {0, 1, 40}, {0, 2, 40}, {1, others[i], 40}};

        assert_in_range(part_of_the_first(habits, 4, 2), 485, 515);
    }
}

/* Long outputs, or long prompts, of a worse class that has aged, or of that one and the better,
 * have all places, and more are waiting: another tenant of the better class, which has done nothing
 * to owe anything, has its first token as fast as beside a flood of its own class. */
static void under_aged_flood(uint32_t depth, uint32_t flood, uint32_t priority, uint64_t seed)
{
    const bool prompts = seed % 2 == 0, both = seed % 4 > 1;
    const struct service_case c = {.depth = depth, .age_up_us = 50000};
    struct simulation sim;
    struct sim_job *better;
    int64_t arrived;

    service_rig_open_shared(&sim, &c, 140, seed);
    for (int i = 0; i < 120; i++) {
        sim.priority = both && sim_random(&sim, 2) == 0 ? priority : flood;
        service_rig_submit(&sim, 0, (prompts ? 20 : 1) + sim_random(&sim, prompts ? 150 : 8),
                           prompts ? 20 : 150 + sim_random(&sim, 40));
    }
    for (uint32_t i = 120 + sim_random(&sim, 80); i > 0; i--)
        assert_true(sim_turn(&sim));
    sim.priority = priority;
    arrived = sim_now_us(&sim);
    better = service_rig_submit(&sim, 1, 1 + sim_random(&sim, 100), 1);
    while (better->first_token_us == 0)
        assert_true(sim_turn(&sim));
    assert_true(better->first_token_us - arrived <= service_rig_first_token_us(better->n_prompt));
    service_rig_close(&sim);
}

static void test_a_flood_that_has_aged_does_not_hold_up_a_better_class(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++)
        for (uint64_t seed = 1; seed <= 40; seed++) {
            under_aged_flood(depth, 2, 0, seed);
            under_aged_flood(depth, 2, 1, seed);
            under_aged_flood(depth, 1, 0, seed);
        }
}

/* A long prompt has half of the time at least beside shorter ones of a worse class that have aged,
 * of which there are always more, and all came before it. */
static void test_prompts_of_classes_that_take_turns_share_the_time(void **state)
{
    const struct service_case c = {.depth = 1, .priority = 2, .age_up_us = 50000};
    struct simulation sim;
    struct sim_job *better;
    int64_t arrived, alone;

    (void)state;
    service_rig_open_shared(&sim, &c, 280, 3);
    for (int i = 0; i < 250; i++)
        service_rig_submit(&sim, 0, 40 + sim_random(&sim, 40), 1);
    for (int i = 0; i < 50; i++)
        assert_true(sim_turn(&sim));
    sim.priority = 0;
    arrived = sim_now_us(&sim);
    better = service_rig_submit(&sim, 1, 190, 1);
    while (better->first_token_us == 0)
        assert_true(sim_turn(&sim));
    alone = 190 * SERVICE_ROW_US / (SERVICE_STEP_US - 2000) + 1;
    assert_true(better->first_token_us - arrived <= 2 * (alone + 1) * SERVICE_STEP_US);
    service_rig_close(&sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_has_aged_does_not_starve_under_a_better_class),
        cmocka_unit_test(test_who_comes_into_a_class_that_has_aged_gets_on_as_well),
        cmocka_unit_test(test_a_long_queue_that_has_aged_does_not_keep_out_the_better_class),
        cmocka_unit_test(test_one_that_is_preempted_again_and_again_gets_on_at_last),
        cmocka_unit_test(test_a_worse_class_gives_nobody_a_larger_share),
        cmocka_unit_test(test_who_asks_in_several_classes_has_one_share),
        cmocka_unit_test(test_a_flood_that_has_aged_does_not_hold_up_a_better_class),
        cmocka_unit_test(test_prompts_of_classes_that_take_turns_share_the_time),
    };

    log_init("test", LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
