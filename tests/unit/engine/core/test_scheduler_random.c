/* Random schedules of sequences that no cache knows; test_simulator.c has the others. */
#include "tests/lib/scheduler_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

static void random_event(struct scheduler_rig *r)
{
    struct rig_sequence *j;

    if (scheduler_rig_random(r, 3) != 0 && r->n_jobs < RIG_SEQUENCES) {
        uint32_t most = r->cfg.n_pages * KV_PAGE_TOKENS - 1;

        most = most < r->cfg.max_context - 1 ? most : r->cfg.max_context - 1;
        most = most < RIG_PROMPT_MAX ? most : RIG_PROMPT_MAX;
        j = scheduler_rig_submit(r, 1 + scheduler_rig_random(r, most),
                                 scheduler_rig_random(r, RIG_OUTPUT_MAX),
                                 scheduler_rig_random(r, 3));
        j->stops = scheduler_rig_random(r, 2) == 0;
    }
    if (r->n_jobs == 0)
        return;
    j = &r->jobs[scheduler_rig_random(r, r->n_jobs)];
    if (j->n_ends > 0)
        return;
    if (scheduler_rig_random(r, 12) == 0)
        scheduler_cancel(r->scheduler, &j->sequence, ST_CANCELLED, 0);
    else
        j->sequence.held = scheduler_rig_random(r, 3) == 0;
}

static void random_schedule(uint64_t seed)
{
    struct scheduler_config cfg;
    struct scheduler_rig r = {.random = seed};

    cfg = (struct scheduler_config){.max_sequences = 1 + scheduler_rig_random(&r, 6),
                                    .prefill_rows = 1 + scheduler_rig_random(&r, 24),
                                    .max_context = 20 + scheduler_rig_random(&r, 100),
                                    .n_pages = 2 + scheduler_rig_random(&r, 14),
                                    .queue_max = RIG_SEQUENCES,
                                    .depth = 1 + scheduler_rig_random(&r, 2)};
    scheduler_rig_open(&r, &cfg);
    r.random = seed;
    if (seed % 4 == 0)
        fake_device_script.fail_complete_every = 50;
    if (seed % 5 == 0)
        fake_device_script.fail_submit_every = 60;
    if (seed % 3 == 0)
        fake_device_script.nan_seed = 1 + scheduler_rig_random(&r, RIG_SEQUENCES);
    for (int i = 0; i < 300; i++) {
        if (scheduler_rig_random(&r, 4) == 0)
            random_event(&r);
        stepper_turn(&r.stepper);
    }
    for (uint32_t i = 0; i < r.n_jobs; i++)
        r.jobs[i].sequence.held = false;
    scheduler_rig_run(&r);
    for (uint32_t i = 0; i < r.n_jobs; i++)
        scheduler_rig_check(&r, &r.jobs[i]);
    scheduler_rig_close(&r);
}

static void test_random_schedules_give_what_each_gives_alone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 1000; seed++)
        random_schedule(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schedules_give_what_each_gives_alone),
    };

    log_init("test", LOG_ERROR + 1); /* failed steps are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
