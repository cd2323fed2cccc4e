/* Random schedules from seeds: arrivals, cancels, holds, stops, deadlines, classes, adapters,
 * masks that end in nothing, scores, several choices, shared prompts, failing steps, refused slots
 * and NaN, on one and on two steps in flight, with pages and slots too few. What is checked is in
 * tests/lib/simulation.c. */
#include "tests/lib/simulation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

/* Sanitizers compute slowly, and ThreadSanitizer has one thread to look at: there as many as give
 * every combination of what a seed decides. */
#if defined(__SANITIZE_THREAD__)
#define SCHEDULES 420
#elif defined(__SANITIZE_ADDRESS__)
#define SCHEDULES 840
#else
#define SCHEDULES 3000
#endif
#define JOBS  40
#define TURNS 250

static uint32_t less(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static struct scheduler_config random_config(struct simulation *r)
{
    return (struct scheduler_config){.max_sequences = 1 + sim_random(r, 6),
                                     .prefill_rows = 1 + sim_random(r, 40),
                                     .max_context = 20 + sim_random(r, 120),
                                     .n_pages = 2 + sim_random(r, 18),
                                     .queue_max = 4 + sim_random(r, JOBS),
                                     .tenant_queue_max = sim_random(r, 20),
                                     .depth = 1 + sim_random(r, 2),
                                     .step_us = sim_random(r, 3) * 1000,
                                     .cost = {.base_ns = sim_random(r, 1000000),
                                              .row_ns = sim_random(r, 200000),
                                              .attended_ns = sim_random(r, 2000),
                                              .logits_ns = sim_random(r, 50000)},
                                     .age_up_us = sim_random(r, 2) * 300000,
                                     .prefix_cache = sim_random(r, 3) > 0,
                                     .prefix_cache_permille = sim_random(r, 1001)};
}

static void random_traits(struct simulation *sim, struct sim_job *j)
{
    struct sequence *q = &j->sequence;

    q->tenant = sim_random(sim, 3);
    q->project = sim_random(sim, 2);
    q->weight = 500 + sim_random(sim, 3) * 500;
    q->priority = sim_random(sim, PRIORITY_CLASSES);
    q->max_tokens = sim_random(sim, 50);
    q->adapter = sim_random(sim, 4) == 0 ? 1 + sim_random(sim, SIM_ADAPTERS - 1) : 0;
    q->masked = sim_random(sim, 4) == 0;
    j->starves_after = sim_random(sim, 6) == 0 ? 1 + sim_random(sim, 20) : 0;
    q->sampling.want_prompt_logprobs = sim_random(sim, 6) == 0;
    if (sim_random(sim, 8) == 0)
        q->queue_deadline_us = sim_now_us(sim) + sim_random(sim, 200000);
    j->stops = sim_random(sim, 2) == 0;
}

/* A further choice of the same prompt. */
static void submit_choice(struct simulation *sim, struct sim_job *leader)
{
    struct sim_job *j = sim_job(sim);
    enum status status;

    if (j == NULL || leader->n_ends > 0)
        return;
    for (uint32_t i = 0; i < leader->n_prompt; i++)
        j->tokens[i] = leader->tokens[i];
    j->n_prompt = j->n_tokens = leader->n_prompt;
    j->stops = leader->stops;
    j->sequence.tenant = leader->sequence.tenant;
    j->sequence.project = leader->sequence.project;
    j->sequence.weight = leader->sequence.weight;
    j->sequence.priority = leader->sequence.priority;
    j->sequence.max_tokens = leader->sequence.max_tokens;
    j->sequence.adapter = leader->sequence.adapter;
    j->sequence.leader = &leader->sequence;
    (void)sim_submit(j, &status);
}

static void random_arrival(struct simulation *sim)
{
    struct sim_job *j = sim_job(sim);
    uint32_t most = less(sim->cfg.n_pages * KV_PAGE_TOKENS, sim->cfg.max_context);
    enum status status;

    if (j == NULL)
        return;
    random_traits(sim, j);
    sim_prompt(j, 1 + sim_random(sim, most), sim_random(sim, 2) * sim_random(sim, 80),
               sim_random(sim, 2));
    if (!sim_submit(j, &status)) {
        assert_true(status == ST_OVERLOADED || status == ST_TOO_LONG);
        assert_in_range(scheduler_retry_after_ms(sim->scheduler, j->sequence.tenant), 1000, 60000);
        return;
    }
    if (sim_random(sim, 4) == 0)
        for (uint32_t n = 1 + sim_random(sim, 4); n > 0; n--)
            submit_choice(sim, j);
}

static void random_event(struct simulation *sim)
{
    struct sim_job *j = &sim->jobs[sim_random(sim, sim->n_jobs)];

    if (sim_random(sim, 3) != 0)
        random_arrival(sim);
    if (!j->is_live || j->n_ends > 0)
        return;
    if (sim_random(sim, 10) == 0)
        scheduler_cancel(sim->scheduler, &j->sequence, ST_CANCELLED, sim_now_us(sim));
    else
        j->sequence.held = sim_random(sim, 4) == 0;
    sim->champion_arrival = 0; /* another may be the one that is looked at */
}

static void random_schedule(uint64_t seed)
{
    struct simulation sim = {.random = seed};
    struct scheduler_config cfg = random_config(&sim);

    sim_open(&sim, &cfg, JOBS, seed);
    if (seed % 4 == 0)
        fake_device_script.fail_complete_every = 50;
    if (seed % 5 == 0)
        fake_device_script.fail_submit_every = 60;
    if (seed % 3 == 0)
        fake_device_script.nan_seed = sim.jobs[0].sequence.sampling.seed;
    sim.may_fail = seed % 4 == 0 || seed % 5 == 0;
    for (int i = 0; i < TURNS; i++) {
        if (sim_random(&sim, 3) == 0)
            random_event(&sim);
        if (seed % 3 == 0 && i % 20 == 0)
            fake_device_script.nan_seed = sim.jobs[sim_random(&sim, JOBS)].sequence.sampling.seed;
        if (seed % 7 == 0 && i % 20 == 0)
            fake_device_script.refuse_slot_seed =
                sim.jobs[sim_random(&sim, JOBS)].sequence.sampling.seed;
        if (!sim_turn(&sim))
            fake_device_set_time(sim.device, sim_now_us(&sim) + 10000);
    }
    for (uint32_t i = 0; i < sim.n_jobs; i++)
        sim.jobs[i].sequence.held = false;
    sim_run_all(&sim);
    sim_close(&sim);
}

static void test_random_schedules_keep_every_promise(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SCHEDULES; seed++)
        random_schedule(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_schedules_keep_every_promise),
    };

    log_init("test", LOG_ERROR + 1); /* failed steps are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
