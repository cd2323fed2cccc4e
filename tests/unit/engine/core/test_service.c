/* Who gets how much, and when, on the simulated device: the bounds of docs/scheduling.md. */
#include "tests/lib/simulation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

#define STEP_US 10000
#define ROW_US  200

static const struct scheduler_config shared = {.max_sequences = 8,
                                               .prefill_rows = 64,
                                               .max_context = 200,
                                               .n_pages = 80,
                                               .queue_max = 300,
                                               .depth = 1,
                                               .step_us = STEP_US,
                                               .cost = {.base_ns = 2000000, .row_ns = 200000},
                                               .prefix_cache = true,
                                               .prefix_cache_permille = 500};

/* Steps take what the cost says. */
static void open_config(struct simulation *sim, const struct scheduler_config *cfg, uint32_t n_jobs,
                        uint64_t seed)
{
    sim_open(sim, cfg, n_jobs, seed);
    fake_device_script.step_us = 2000;
    fake_device_script.row_us = ROW_US;
}

static void open_timed(struct simulation *sim, uint32_t depth, uint32_t n_jobs, uint64_t seed)
{
    struct scheduler_config cfg = shared;

    cfg.depth = depth;
    open_config(sim, &cfg, n_jobs, seed);
}

static struct sim_job *submit(struct simulation *sim, uint64_t tenant, uint32_t n_prompt,
                              uint32_t max_tokens)
{
    struct sim_job *j = sim_job(sim);
    enum status status;

    assert_non_null(j);
    j->sequence.tenant = tenant;
    j->sequence.max_tokens = max_tokens;
    sim_prompt(j, n_prompt, 0, 0);
    assert_true(sim_submit(j, &status));
    return j;
}

static uint32_t live_of(const struct simulation *sim, uint64_t tenant)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < sim->n_jobs; i++)
        n += sim->jobs[i].is_live && sim->jobs[i].sequence.tenant == tenant;
    return n;
}

static void cancel_all(struct simulation *sim)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++)
        if (sim->jobs[i].is_live)
            scheduler_cancel(sim->scheduler, &sim->jobs[i].sequence, ST_CANCELLED, 0);
    sim_run_all(sim);
}

static int64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? (int64_t)(a - b) : (int64_t)(b - a);
}

/* docs/scheduling.md: by what two backlogged tenants of equal weight may differ. */
static int64_t balance_bound(const struct scheduler_config *cfg)
{
    const int64_t slots = cfg->max_sequences, limit = cfg->max_context;

    return (2 * slots + 1) * limit + cfg->depth * (2 * slots + cfg->prefill_rows);
}

/* Two tenants that always have requests waiting: one of long prompts, one of long outputs. Both
 * begin with nothing, so that the bound of docs/scheduling.md holds for what each has had. */
static void backlogged(uint32_t depth, uint64_t seed)
{
    int64_t most = 0, bound;
    struct simulation sim;

    open_timed(&sim, depth, 64, seed);
    bound = balance_bound(&sim.cfg);
    for (int i = 0; i < 4000; i++) {
        while (live_of(&sim, 0) < 24)
            submit(&sim, 0, 100 + sim_random(&sim, 80), 1 + sim_random(&sim, 10));
        while (live_of(&sim, 1) < 24)
            submit(&sim, 1, 1 + sim_random(&sim, 20), 40 + sim_random(&sim, 100));
        assert_true(sim_turn(&sim));
        most =
            distance(sim.work[0], sim.work[1]) > most ? distance(sim.work[0], sim.work[1]) : most;
    }
    assert_true(most <= bound / 10); /* as the page says */
    assert_true(sim.work[0] > 8 * (uint64_t)bound);
    cancel_all(&sim);
    sim_close(&sim);
}

static void test_backlogged_tenants_stay_within_the_bound(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        backlogged(1, seed);
        backlogged(2, seed);
    }
}

/* Rows that were computed again, of a thousand, where pages hold a few of the requests that two
 * tenants have waiting. */
static uint64_t again_permille(uint32_t depth, uint64_t seed, bool prefix_cache)
{
    struct scheduler_config cfg = shared;
    struct scheduler_stats st;
    struct simulation sim;
    uint64_t permille;

    cfg.depth = depth;
    cfg.n_pages = 20;
    cfg.prefix_cache = prefix_cache;
    open_config(&sim, &cfg, 64, seed);
    for (int i = 0; i < 6000; i++) {
        while (live_of(&sim, 0) < 24)
            submit(&sim, 0, 100 + sim_random(&sim, 80), 1 + sim_random(&sim, 10));
        while (live_of(&sim, 1) < 24)
            submit(&sim, 1, 1 + sim_random(&sim, 20), 40 + sim_random(&sim, 100));
        assert_true(sim_turn(&sim));
    }
    scheduler_stats(sim.scheduler, &st);
    assert_true(st.preemptions > 100);
    permille = sim.n_again * 1000 / sim.n_rows;
    cancel_all(&sim);
    sim_close(&sim);
    return permille;
}

static void test_preemption_costs_at_most_half_of_the_work(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (uint32_t depth = 1; depth <= 2; depth++) {
            assert_in_range(again_permille(depth, seed, false), 0, 500);
            assert_in_range(again_permille(depth, seed, true), 0, 500);
        }
}

static void test_weights_1_and_3_give_1_and_3_of_the_service(void **state)
{
    struct simulation sim;

    (void)state;
    open_timed(&sim, 1, 64, 7);
    for (int i = 0; i < 6000; i++) {
        for (uint64_t tenant = 0; tenant < 2; tenant++)
            while (live_of(&sim, tenant) < 24) {
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
    cancel_all(&sim);
    sim_close(&sim);
}

/* Steps that a prompt takes at half of what a step's time leaves beside a full batch of decodes and
 * the champion's page. */
static int64_t own_prefill_us(uint32_t n_prompt)
{
    int64_t rows = (STEP_US - 2000) / ROW_US - shared.max_sequences - KV_PAGE_TOKENS;
    int64_t half = rows / 2, steps = (n_prompt + half - 1) / half;

    return steps * STEP_US;
}

/* A step may pass its time by the page that its first prompt always gets. */
static void under_flood(uint32_t depth, uint64_t seed)
{
    struct sim_job *victim;
    struct simulation sim;
    uint32_t n_prompt;
    int64_t arrived;

    open_timed(&sim, depth, 140, seed);
    for (int i = 0; i < 120; i++)
        submit(&sim, 0, 20 + sim_random(&sim, 150), 20);
    for (uint32_t i = 30 + sim_random(&sim, 60); i > 0; i--)
        assert_true(sim_turn(&sim));
    n_prompt = 1 + sim_random(&sim, 100);
    arrived = sim_now_us(&sim);
    victim = submit(&sim, 1, n_prompt, 1);
    while (victim->first_token_us == 0)
        assert_true(sim_turn(&sim));
    assert_true(victim->first_token_us - arrived <=
                own_prefill_us(n_prompt) + 2 * (STEP_US + KV_PAGE_TOKENS * ROW_US));
    cancel_all(&sim);
    sim_close(&sim);
}

static void test_a_flood_moves_anothers_first_token_by_a_step_and_a_preemption(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        under_flood(1, seed);
        under_flood(2, seed);
    }
}

/* A tenant that ran alone, with nothing waiting, is followed by one that was idle: that one gets no
 * credit for the time, and is never ahead by more than a request. */
static void after_idle(uint32_t depth)
{
    uint64_t alone;
    int64_t most = 0;
    struct simulation sim;

    open_timed(&sim, depth, 64, 5);
    for (uint32_t i = 0; i < shared.max_sequences; i++)
        submit(&sim, 0, 5, 190);
    for (int i = 0; i < 150; i++)
        assert_true(sim_turn(&sim));
    alone = sim.work[0];
    for (int i = 0; i < 400; i++) {
        for (uint64_t tenant = 2; tenant-- > 0 && (tenant == 1 || i > 0);)
            while (live_of(&sim, tenant) < 24)
                submit(&sim, tenant, 1 + sim_random(&sim, 20), 40 + sim_random(&sim, 100));
        assert_true(sim_turn(&sim));
        if ((int64_t)sim.work[1] - (int64_t)(sim.work[0] - alone) > most)
            most = (int64_t)sim.work[1] - (int64_t)(sim.work[0] - alone);
    }
    assert_true(most <= shared.max_context);
    cancel_all(&sim);
    sim_close(&sim);
}

static void test_one_that_was_idle_gets_no_more_than_the_bound(void **state)
{
    (void)state;
    after_idle(1);
    after_idle(2);
}

/* docs/scheduling.md: preemption between tenants costs at most as much work as it serves. */
static void test_small_requests_throw_away_no_more_than_they_get(void **state)
{
    struct scheduler_config cfg = shared;
    struct scheduler_stats st;
    struct simulation sim;

    (void)state;
    cfg.prefix_cache = false;
    cfg.n_pages = 200;
    sim_open(&sim, &cfg, 64, 5);
    for (int i = 0; i < 8; i++)
        submit(&sim, 0, 5, 190);
    for (int turns = 0; live_of(&sim, 0) > 0; turns++) {
        scheduler_stats(sim.scheduler, &st);
        if (turns > 60 && st.running == 8 && live_of(&sim, 0) == 8 && live_of(&sim, 1) == 0)
            for (int k = 0; k < 7; k++)
                submit(&sim, 1, 1, 1);
        assert_true(sim_turn(&sim));
    }
    /* 3080 is what the first tenant takes alone. */
    assert_true(sim.work[0] - 3080 <= sim.work[1] + cfg.max_context);
    sim_run_all(&sim);
    sim_close(&sim);
}

/* Whose long outputs have all places gives way as well: only the share rule of room.c asks it to.
 */
static void under_long_outputs(uint32_t depth, uint64_t seed)
{
    struct sim_job *victim;
    struct simulation sim;
    uint32_t n_prompt;
    int64_t arrived;

    open_timed(&sim, depth, 140, seed);
    for (int i = 0; i < 120; i++)
        submit(&sim, 0, 1 + sim_random(&sim, 8), 150 + sim_random(&sim, 40));
    for (uint32_t i = 60 + sim_random(&sim, 80); i > 0; i--)
        assert_true(sim_turn(&sim));
    n_prompt = 1 + sim_random(&sim, 100);
    arrived = sim_now_us(&sim);
    victim = submit(&sim, 1, n_prompt, 1);
    while (victim->first_token_us == 0)
        assert_true(sim_turn(&sim));
    assert_true(victim->first_token_us - arrived <=
                own_prefill_us(n_prompt) + 2 * (STEP_US + KV_PAGE_TOKENS * ROW_US));
    cancel_all(&sim);
    sim_close(&sim);
}

static void test_long_outputs_give_way_as_well(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        under_long_outputs(1, seed);
        under_long_outputs(2, seed);
    }
}

/* A row with a score has logits to pay for. */
static void test_scored_rows_count_in_the_budget(void **state)
{
    struct scheduler_config cfg = shared;
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
    assert_true(ns <= 3 * STEP_US * 1000 / 2);
    scheduler_fail(sim.scheduler, scheduler_oldest(sim.scheduler), 0);
    sim_close(&sim);
}

/* A device whose steps take other than was measured; prompts that never end. The mean of the steps
 * after `warm` of them. */
static int64_t mean_step_us(const struct fake_device_script *takes, uint32_t depth, int warm)
{
    struct scheduler_config cfg = shared;
    struct simulation sim;
    int64_t from;

    cfg.depth = depth;
    cfg.cost.attended_ns = 500;
    open_config(&sim, &cfg, 140, 3);
    fake_device_script.step_us = takes->step_us;
    fake_device_script.row_us = takes->row_us;
    fake_device_script.attended_ns = takes->attended_ns;
    for (int i = 0; i < 130; i++)
        submit(&sim, (uint64_t)i % 3, 190, 5);
    for (int i = 0; i < warm; i++)
        assert_true(sim_turn(&sim));
    from = sim_now_us(&sim);
    for (int i = 0; i < 100; i++)
        assert_true(sim_turn(&sim));
    from = sim_now_us(&sim) - from;
    cancel_all(&sim);
    sim_close(&sim);
    return from / 100;
}

static void test_steps_keep_their_time_at_another_pace_than_was_measured(void **state)
{
    /* Where rows cost half, the most rows of a step and the decodes bound it before its time. */
    static const struct {
        struct fake_device_script takes;
        uint32_t least, most; /* percent of STEP_US */
    } cases[] = {
        {{.step_us = 2000, .row_us = ROW_US, .attended_ns = 500}, 85, 115},
        {{.step_us = 4000, .row_us = 2 * ROW_US, .attended_ns = 1000}, 85, 115},
        {{.step_us = 1000, .row_us = ROW_US / 2, .attended_ns = 250}, 70, 115},
        /* One coefficient is wrong. */
        {{.step_us = 6000, .row_us = ROW_US, .attended_ns = 500}, 75, 125},
        {{.step_us = 2000, .row_us = 4 * ROW_US, .attended_ns = 500}, 75, 125},
        {{.step_us = 2000, .row_us = ROW_US, .attended_ns = 8000}, 75, 125},
        /* All are, each by another factor. */
        {{.step_us = 8000, .row_us = 0, .attended_ns = 4000}, 75, 125},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint32_t depth = 1; depth <= 2; depth++) {
            int64_t us = mean_step_us(&cases[i].takes, depth, 40);

            assert_in_range(us * 100 / STEP_US, cases[i].least, cases[i].most);
        }
}

/* Every step costs more than a step may take, as far as is known: small chunks of it would only be
 * paid for more often. */
static uint32_t chunk_beside(uint32_t n_others)
{
    struct scheduler_config cfg = shared;
    const struct scheduled_step *t;
    struct simulation sim;
    struct sim_job *j;
    uint32_t n = 0;

    cfg.cost.base_ns = 3ull * STEP_US * 1000;
    open_config(&sim, &cfg, 8, 5);
    for (uint32_t i = 0; i < n_others; i++)
        submit(&sim, 1, 5, 50);
    assert_int_equal(sim_turn(&sim), n_others > 0);
    j = submit(&sim, 0, 190, 1);
    t = scheduler_build(sim.scheduler, sim_now_us(&sim));
    for (uint32_t i = 0; i < t->n_entries; i++)
        n += t->entries[i].sequence == &j->sequence ? t->entries[i].n_rows : 0;
    scheduler_fail(sim.scheduler, scheduler_oldest(sim.scheduler), sim_now_us(&sim));
    sim_close(&sim);
    return n;
}

static void test_a_prompt_that_is_alone_has_all_of_a_steps_time(void **state)
{
    (void)state;
    assert_int_equal(chunk_beside(0), STEP_US / ROW_US);
    assert_int_equal(chunk_beside(1), STEP_US / ROW_US / 4);
}

/* ---- what exchanges cost ---- */

/* A tenant's way to ask: some at a time, in phases, all of one kind. */
struct habit {
    uint32_t n_at_once, prompt_max, output_max;
    uint32_t period, busy; /* turns */
};

static void follow_habit(struct simulation *sim, uint64_t tenant, const struct habit *h,
                         uint32_t turn)
{
    if (turn % h->period >= h->busy)
        return;
    while (live_of(sim, tenant) < h->n_at_once)
        submit(sim, tenant, 1 + sim_random(sim, h->prompt_max), 1 + sim_random(sim, h->output_max));
}

/* Most rows that a tenant can have thrown away beyond what it has paid for. */
static uint64_t overdraft(const struct scheduler_config *cfg)
{
    uint64_t of_share = 2 * cfg->max_context + cfg->max_sequences + 2 * KV_PAGE_TOKENS;
    uint64_t of_lead = (uint64_t)balance_bound(cfg) / 2;

    return of_share > of_lead ? of_share : of_lead;
}

static void exchange(uint64_t seed)
{
    struct scheduler_config cfg = shared;
    struct habit habits[3];
    struct scheduler_stats st;
    struct simulation sim = {.random = seed};

    cfg.max_context = 100;
    cfg.max_sequences = 2 + sim_random(&sim, 5);
    cfg.n_pages = 8 + sim_random(&sim, 40);
    cfg.prefill_rows = 8 + sim_random(&sim, 56);
    cfg.depth = 1 + (uint32_t)(seed % 2);
    cfg.prefix_cache = false;
    for (int i = 0; i < 3; i++)
        habits[i] = (struct habit){.n_at_once = 1 + sim_random(&sim, 12),
                                   .prompt_max = 1 + sim_random(&sim, 49),
                                   .output_max = 1 + sim_random(&sim, 49),
                                   .period = 1 + sim_random(&sim, 60),
                                   .busy = 1 + sim_random(&sim, 60)};
    open_config(&sim, &cfg, 64, seed);
    for (uint32_t turn = 0; turn < 3000; turn++) {
        for (uint64_t tenant = 0; tenant < 3; tenant++)
            follow_habit(&sim, tenant, &habits[tenant], turn);
        (void)sim_turn(&sim);
    }
    scheduler_stats(sim.scheduler, &st);
    assert_true(st.exchanged_rows <= (sim.n_rows - sim.n_again) * 9 / 16 + 3 * overdraft(&cfg));
    cancel_all(&sim);
    sim_close(&sim);
}

static void test_exchanges_are_paid_for_by_those_who_gain(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++)
        exchange(seed);
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
        uint32_t live = live_of(sim, 0) + live_of(sim, 1) + live_of(sim, 2) + live_of(sim, 3);
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
    open_timed(&sim, 2, 40, 11);
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
        cmocka_unit_test(test_preemption_costs_at_most_half_of_the_work),
        cmocka_unit_test(test_weights_1_and_3_give_1_and_3_of_the_service),
        cmocka_unit_test(test_a_flood_moves_anothers_first_token_by_a_step_and_a_preemption),
        cmocka_unit_test(test_one_that_was_idle_gets_no_more_than_the_bound),
        cmocka_unit_test(test_small_requests_throw_away_no_more_than_they_get),
        cmocka_unit_test(test_long_outputs_give_way_as_well),
        cmocka_unit_test(test_scored_rows_count_in_the_budget),
        cmocka_unit_test(test_a_prompt_that_is_alone_has_all_of_a_steps_time),
        cmocka_unit_test(test_exchanges_are_paid_for_by_those_who_gain),
        cmocka_unit_test(test_steps_keep_their_time_at_another_pace_than_was_measured),
        cmocka_unit_test(test_the_last_thousand_of_ten_is_as_quick_as_the_first),
    };

    log_init("test", LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
