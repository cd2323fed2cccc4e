#include "engine/core/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "engine/core/stepper.h"
#include "tests/lib/fake_device.h"

#define JOBS_MAX   40
#define PROMPT_MAX 60
#define OUTPUT_MAX 80
#define STOP_EVERY 29 /* ids divisible by this end a sequence, where the job stops at all */

struct job {
    struct sequence sequence; /* first: the callbacks cast */
    int32_t prompt[PROMPT_MAX];
    uint32_t n_prompt;
    bool stops;
    int32_t output[OUTPUT_MAX];
    uint32_t n_output;
    int n_ends, n_releases;
    enum status status;
    enum engine_finish finish;
    bool prefilled_at_end;
};

struct rig {
    struct scheduler_config cfg;
    struct scheduler *scheduler;
    struct device *device;
    struct stepper stepper;
    struct job jobs[JOBS_MAX];
    uint32_t n_jobs;
    uint64_t random;
};

static bool on_token(void *arg, struct sequence *s, const struct token_sample *t, bool last)
{
    struct job *j = (struct job *)s;

    (void)arg;
    assert_int_equal(j->n_ends, 0);
    assert_true(j->n_output < s->max_tokens);
    j->output[j->n_output++] = t->id;
    assert_int_equal(sequence_n_output(s), j->n_output);
    assert_true(!last || s->n_tokens == s->limit);
    return j->stops && t->id % STOP_EVERY == 0;
}

static void on_end(void *arg, struct sequence *s, enum status status, enum engine_finish finish)
{
    struct job *j = (struct job *)s;

    (void)arg;
    j->n_ends++;
    j->status = status;
    j->finish = finish;
    j->prefilled_at_end = s->prefilled;
}

static void on_release(void *arg, struct sequence *s)
{
    struct job *j = (struct job *)s;

    (void)arg;
    assert_int_equal(j->n_ends, 1);
    j->n_releases++;
}

static void on_score(void *arg, struct sequence *s, uint32_t position, const struct token_sample *t)
{
    (void)arg;
    assert_in_range(position, 1, s->n_prompt - 1);
    assert_int_equal(t->id, s->tokens[position]);
}

static const struct scheduler_events events = {
    .on_token = on_token, .on_score = on_score, .on_end = on_end, .on_release = on_release};

static void rig_open(struct rig *r, const struct scheduler_config *cfg)
{
    struct device_config device = {.max_rows = scheduler_max_rows(cfg),
                                   .max_sequences = cfg->max_sequences,
                                   .max_context = cfg->max_context,
                                   .n_pages = cfg->n_pages};

    memset(r, 0, sizeof *r);
    memset(&fake_device_script, 0, sizeof fake_device_script);
    r->cfg = *cfg;
    r->random = 1;
    assert_int_equal(fake_device_ops.open(&device, &r->device, NULL), ST_OK);
    assert_int_equal(scheduler_new(cfg, &events, r, &r->scheduler), ST_OK);
    assert_int_equal(stepper_init(&r->stepper, r->scheduler, r->device,
                                  &(struct stepper_limits){.max_rows = scheduler_max_rows(cfg),
                                                           .max_sequences = cfg->max_sequences,
                                                           .n_vocab = FAKE_DEVICE_VOCAB}),
                     ST_OK);
    r->stepper.now_us = fake_device_now_us;
    r->stepper.clock_arg = r->device;
    fake_device_set_time(r->device, 1000000);
}

/* Nothing is left behind, whatever happened. */
static void rig_close(struct rig *r)
{
    struct scheduler_stats st;

    scheduler_stats(r->scheduler, &st);
    assert_int_equal(st.pages_used, 0);
    assert_int_equal(st.running + st.waiting, 0);
    for (uint32_t i = 0; i < r->n_jobs; i++) {
        assert_int_equal(r->jobs[i].n_ends, 1);
        assert_int_equal(r->jobs[i].n_releases, 1);
    }
    stepper_dispose(&r->stepper);
    scheduler_free(r->scheduler);
    r->device->ops->close(r->device);
}

static uint32_t random_below(struct rig *r, uint32_t n)
{
    r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(r->random >> 33) % n;
}

static struct job *submit(struct rig *r, uint32_t n_prompt, uint32_t max_tokens, uint64_t tenant)
{
    struct job *j = &r->jobs[r->n_jobs];

    assert_true(r->n_jobs < JOBS_MAX && n_prompt <= PROMPT_MAX);
    for (uint32_t i = 0; i < n_prompt; i++)
        j->prompt[i] = (int32_t)random_below(r, FAKE_DEVICE_VOCAB);
    j->n_prompt = n_prompt;
    j->sequence.tenant = tenant;
    j->sequence.max_tokens = max_tokens;
    j->sequence.sampling.seed = r->n_jobs + 1;
    assert_int_equal(scheduler_submit(r->scheduler, &j->sequence, j->prompt, n_prompt, 0), ST_OK);
    r->n_jobs++;
    return j;
}

static void run_all(struct rig *r)
{
    for (int i = 0; stepper_turn(&r->stepper); i++)
        assert_true(i < 100000);
}

/* What the job gives alone: the definition of the fake device, without any scheduler. */
static uint32_t alone(const struct rig *r, const struct job *j, int32_t *out,
                      enum engine_finish *finish)
{
    int32_t tokens[PROMPT_MAX + OUTPUT_MAX];
    uint32_t n = j->n_prompt, max = j->sequence.max_tokens, limit = r->cfg.n_pages * KV_PAGE_TOKENS;

    limit = limit < r->cfg.max_context ? limit : r->cfg.max_context;
    memcpy(tokens, j->prompt, n * sizeof tokens[0]);
    *finish = ENGINE_FINISH_LENGTH;
    for (uint32_t i = 0; i < max && n < limit; i++) {
        tokens[n] = fake_device_pick(tokens, n, j->sequence.sampling.seed, i, FAKE_DEVICE_VOCAB);
        out[i] = tokens[n++];
        if (j->stops && out[i] % STOP_EVERY == 0) {
            *finish = ENGINE_FINISH_STOP;
            break;
        }
    }
    return n - j->n_prompt;
}

/* Completed ones gave exactly what they give alone; the others a beginning of it. */
static void check_output(const struct rig *r, const struct job *j)
{
    int32_t expected[OUTPUT_MAX];
    enum engine_finish finish;
    uint32_t n = alone(r, j, expected, &finish);

    assert_true(j->n_output <= n);
    assert_memory_equal(j->output, expected, j->n_output * sizeof expected[0]);
    if (j->status != ST_OK)
        return;
    assert_int_equal(j->n_output, n);
    assert_int_equal(j->finish, finish);
    assert_true(j->prefilled_at_end);
}

static const struct scheduler_config roomy = {.max_sequences = 4,
                                              .prefill_rows = 8,
                                              .max_context = 128,
                                              .n_pages = 64,
                                              .queue_max = JOBS_MAX,
                                              .depth = 1};

static void test_a_sequence_runs_to_its_length(void **state)
{
    struct rig r;
    struct job *j;

    (void)state;
    rig_open(&r, &roomy);
    j = submit(&r, 20, 10, 1);
    run_all(&r);
    assert_int_equal(j->n_output, 10);
    check_output(&r, j);
    rig_close(&r);
}

static void test_max_tokens_0_ends_after_the_prompt(void **state)
{
    struct scheduler_stats st;
    struct rig r;
    struct job *j;

    (void)state;
    rig_open(&r, &roomy);
    j = submit(&r, 20, 0, 1);
    run_all(&r);
    scheduler_stats(r.scheduler, &st);
    assert_int_equal(j->status, ST_OK);
    assert_int_equal(j->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j->n_output, 0);
    assert_true(j->prefilled_at_end);
    assert_int_equal(st.prompt_tokens, 20);
    rig_close(&r);
}

static void test_the_context_is_the_end(void **state)
{
    struct scheduler_config cfg = roomy;
    struct rig r;
    struct job *j;

    (void)state;
    cfg.max_context = 25;
    rig_open(&r, &cfg);
    j = submit(&r, 20, 70, 1);
    run_all(&r);
    assert_int_equal(j->n_output, 5);
    assert_int_equal(j->finish, ENGINE_FINISH_LENGTH);
    rig_close(&r);
}

static void test_what_can_never_fit_is_refused(void **state)
{
    struct scheduler_config cfg = roomy;
    struct sequence q = {.max_tokens = 1};
    int32_t prompt[64] = {0};
    struct rig r;

    (void)state;
    cfg.n_pages = 3; /* 48 tokens */
    rig_open(&r, &cfg);
    assert_int_equal(scheduler_submit(r.scheduler, &q, prompt, 48, 0), ST_TOO_LONG);
    assert_int_equal(scheduler_submit(r.scheduler, &q, prompt, 49, 0), ST_TOO_LONG);
    submit(&r, 47, 1, 1);
    submit(&r, 48, 0, 1);
    run_all(&r);
    rig_close(&r);
}

static void test_a_full_queue_refuses(void **state)
{
    struct scheduler_config cfg = roomy;
    struct sequence q = {.max_tokens = 1};
    int32_t prompt[1] = {0};
    struct rig r;

    (void)state;
    cfg.queue_max = 2;
    rig_open(&r, &cfg);
    submit(&r, 1, 1, 1);
    submit(&r, 1, 1, 1);
    assert_int_equal(scheduler_submit(r.scheduler, &q, prompt, 1, 0), ST_OVERLOADED);
    run_all(&r);
    rig_close(&r);
}

static void test_a_long_prompt_does_not_hold_up_decodes(void **state)
{
    struct rig r;
    struct job *decoding, *late;
    uint32_t before;

    (void)state;
    rig_open(&r, &roomy);
    decoding = submit(&r, 1, 50, 1);
    stepper_turn(&r.stepper);
    late = submit(&r, 60, 1, 2);
    before = decoding->n_output;
    for (int i = 0; i < 7; i++) /* 60 rows at 8 a step: 8 steps */
        stepper_turn(&r.stepper);
    assert_int_equal(late->n_output, 0);
    assert_int_equal(decoding->n_output, before + 7);
    stepper_turn(&r.stepper);
    assert_int_equal(late->n_output, 1);
    run_all(&r);
    rig_close(&r);
}

static void test_tenants_take_turns(void **state)
{
    struct scheduler_config cfg = roomy;
    struct job *first[3], *other;
    struct rig r;

    (void)state;
    cfg.max_sequences = 1;
    rig_open(&r, &cfg);
    for (int i = 0; i < 3; i++)
        first[i] = submit(&r, 4, 4, 1);
    other = submit(&r, 4, 4, 2);
    while (other->n_ends == 0)
        assert_true(stepper_turn(&r.stepper));
    assert_int_equal(first[0]->n_ends, 1);
    assert_int_equal(first[1]->n_ends, 0);
    run_all(&r);
    rig_close(&r);
}

static void under_page_pressure(uint32_t depth)
{
    struct scheduler_config cfg = roomy;
    struct scheduler_stats st;
    struct rig r;

    cfg.n_pages = 6; /* 96 tokens for four sequences of 80 */
    cfg.depth = depth;
    rig_open(&r, &cfg);
    for (int i = 0; i < 4; i++)
        submit(&r, 20, 60, 1);
    run_all(&r);
    scheduler_stats(r.scheduler, &st);
    assert_true(st.preemptions > 0);
    assert_int_equal(st.prompt_tokens, 4 * 20);
    assert_int_equal(st.output_tokens, 4 * 60);
    for (uint32_t i = 0; i < r.n_jobs; i++) {
        assert_int_equal(r.jobs[i].status, ST_OK);
        check_output(&r, &r.jobs[i]);
    }
    rig_close(&r);
}

static void test_preemption_changes_no_output_and_counts_nothing_twice(void **state)
{
    (void)state;
    under_page_pressure(1);
    under_page_pressure(2);
}

/* Steps until the first of nine sequences, which need many times the pages there are, is done. */
static uint32_t turns_of_the_oldest(uint32_t depth)
{
    struct scheduler_config cfg = roomy;
    struct job *oldest;
    struct rig r;
    uint32_t turns = 0;

    cfg.n_pages = 5;
    cfg.depth = depth;
    rig_open(&r, &cfg);
    oldest = submit(&r, 16, 60, 1);
    for (int i = 0; i < 8; i++)
        submit(&r, 20, 50, (uint64_t)i);
    for (; oldest->n_ends == 0; turns++)
        assert_true(stepper_turn(&r.stepper));
    run_all(&r);
    rig_close(&r);
    return turns;
}

/* Three pages are free and hold its prompt, but the first sequence is about to need one of them. */
static void test_a_prompt_that_would_only_be_preempted_waits(void **state)
{
    const struct scheduler_config cfg = {.max_sequences = 4,
                                         .prefill_rows = 64,
                                         .max_context = 112,
                                         .n_pages = 7,
                                         .queue_max = 8,
                                         .depth = 1};
    struct scheduler_stats st;
    struct rig r;

    (void)state;
    rig_open(&r, &cfg);
    submit(&r, 60, 10, 1);
    submit(&r, 48, 4, 2);
    run_all(&r);
    scheduler_stats(r.scheduler, &st);
    assert_int_equal(st.preemptions, 0);
    rig_close(&r);
}

static void test_the_oldest_gets_a_row_in_every_step(void **state)
{
    uint32_t alone = 16 / 8 + 60 - 1;

    (void)state;
    /* Its prompt's second chunk shares its step with a shorter prompt. */
    assert_in_range(turns_of_the_oldest(1), alone, alone + 1);
    /* With two in flight a preemption costs it the step that has to drain. */
    assert_in_range(turns_of_the_oldest(2), alone, alone + 8);
}

static void test_two_steps_in_flight_name_tokens_by_ticket(void **state)
{
    struct scheduler_config cfg = roomy;
    struct rig r;

    (void)state;
    cfg.depth = 2;
    rig_open(&r, &cfg);
    for (int i = 0; i < 4; i++)
        submit(&r, 10, 40, 1)->stops = true;
    run_all(&r);
    assert_true(fake_device_ticket_rows(r.device) > 20);
    for (uint32_t i = 0; i < r.n_jobs; i++)
        check_output(&r, &r.jobs[i]);
    rig_close(&r);
}

static void test_cancel_frees_pages_within_a_step(void **state)
{
    struct scheduler_stats st;
    struct job *j;
    struct rig r;

    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct scheduler_config cfg = roomy;

        cfg.depth = depth;
        rig_open(&r, &cfg);
        j = submit(&r, 40, 50, 1);
        for (int i = 0; i < 10; i++)
            stepper_turn(&r.stepper);
        scheduler_cancel(r.scheduler, &j->sequence, ST_CANCELLED, 0);
        assert_int_equal(j->n_ends, 1);
        stepper_turn(&r.stepper);
        scheduler_stats(r.scheduler, &st);
        assert_int_equal(st.pages_used, 0);
        assert_int_equal(j->status, ST_CANCELLED);
        rig_close(&r);
    }
}

static void test_nan_ends_that_sequence_alone(void **state)
{
    struct job *bad, *good;
    struct rig r;

    (void)state;
    rig_open(&r, &roomy);
    good = submit(&r, 10, 30, 1);
    bad = submit(&r, 10, 30, 1);
    fake_device_script.nan_seed = bad->sequence.sampling.seed;
    fake_device_script.nan_after = 5;
    run_all(&r);
    assert_int_equal(bad->status, ST_INTERNAL);
    assert_int_equal(bad->n_output, 5);
    assert_int_equal(good->status, ST_OK);
    check_output(&r, good);
    rig_close(&r);
}

static void test_a_failed_step_fails_its_sequences_and_leaks_no_page(void **state)
{
    struct job *late;
    struct rig r;

    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct scheduler_config cfg = roomy;

        cfg.depth = depth;
        rig_open(&r, &cfg);
        for (int i = 0; i < 4; i++)
            submit(&r, 10, 70, 1);
        fake_device_script.fail_complete_every = 12;
        for (int i = 0; i < 13; i++)
            stepper_turn(&r.stepper);
        fake_device_script.fail_complete_every = 0;
        for (int i = 0; i < 4; i++)
            assert_int_equal(r.jobs[i].status, ST_INTERNAL);
        late = submit(&r, 10, 20, 1);
        run_all(&r);
        assert_int_equal(late->status, ST_OK);
        check_output(&r, late);
        rig_close(&r);
    }
}

static void test_a_held_sequence_blocks_nobody(void **state)
{
    struct scheduler_config cfg = roomy;
    struct job *held[2], *other;
    struct rig r;

    (void)state;
    cfg.max_sequences = 2;
    cfg.n_pages = 5;
    rig_open(&r, &cfg);
    held[0] = submit(&r, 30, 30, 1);
    held[1] = submit(&r, 30, 30, 1);
    for (int i = 0; i < 5; i++)
        stepper_turn(&r.stepper);
    held[0]->sequence.held = held[1]->sequence.held = true;
    other = submit(&r, 40, 40, 2);
    run_all(&r);
    assert_int_equal(other->n_ends, 1);
    assert_int_equal(other->n_output, 40);
    assert_int_equal(held[0]->n_ends + held[1]->n_ends, 0);
    held[0]->sequence.held = held[1]->sequence.held = false;
    run_all(&r);
    for (uint32_t i = 0; i < r.n_jobs; i++)
        check_output(&r, &r.jobs[i]);
    rig_close(&r);
}

static struct job *submit_like(struct rig *r, const struct job *like, struct sequence *leader)
{
    struct job *j = &r->jobs[r->n_jobs];

    memcpy(j->prompt, like->prompt, sizeof j->prompt);
    j->n_prompt = like->n_prompt;
    j->sequence.max_tokens = like->sequence.max_tokens;
    j->sequence.tenant = like->sequence.tenant;
    j->sequence.cache = like->sequence.cache;
    j->sequence.sampling.seed = r->n_jobs + 1;
    j->sequence.leader = leader;
    assert_int_equal(scheduler_submit(r->scheduler, &j->sequence, j->prompt, j->n_prompt, 0),
                     ST_OK);
    r->n_jobs++;
    return j;
}

/* A first request, and one of the same prompt when it is done: what the second found cached. */
static uint32_t cached_of_second(bool prefix_cache, bool want_scores)
{
    const struct cache_domain domain = {.salt = {1}, .revision = "r"};
    struct scheduler_config cfg = roomy;
    struct job *first, *second;
    uint32_t cached;
    struct rig r;

    cfg.prefix_cache = prefix_cache;
    cfg.prefix_cache_permille = 1000;
    rig_open(&r, &cfg);
    r.jobs[0].sequence.cache = &domain;
    first = submit(&r, 48, 4, 1);
    run_all(&r);
    r.jobs[1].sequence.sampling.want_prompt_logprobs = want_scores;
    second = submit_like(&r, first, NULL);
    run_all(&r);
    cached = second->sequence.cached_tokens;
    check_output(&r, second);
    rig_close(&r);
    return cached;
}

static void test_a_prompt_is_found_up_to_its_last_token(void **state)
{
    (void)state;
    assert_int_equal(cached_of_second(true, false), 32); /* the third page holds the last token */
    assert_int_equal(cached_of_second(false, false), 0);
    assert_int_equal(cached_of_second(true, true), 0);
}

static void test_without_the_cache_choices_share_and_others_do_not(void **state)
{
    const struct cache_domain domain = {.salt = {1}, .revision = "r"};
    struct job *leader, *choice, *other;
    struct rig r;

    (void)state;
    rig_open(&r, &roomy);
    r.jobs[0].sequence.cache = &domain;
    leader = submit(&r, 48, 20, 1);
    choice = submit_like(&r, leader, &leader->sequence);
    other = submit_like(&r, leader, NULL);
    run_all(&r);
    assert_int_equal(choice->sequence.cached_tokens, 32);
    assert_int_equal(other->sequence.cached_tokens, 0);
    rig_close(&r);
}

static void test_a_tenants_part_of_the_queue_is_bounded(void **state)
{
    struct sequence q = {.tenant = 1, .max_tokens = 1};
    struct scheduler_config cfg = roomy;
    int32_t prompt[1] = {0};
    struct rig r;

    (void)state;
    cfg.tenant_queue_max = 2;
    rig_open(&r, &cfg);
    submit(&r, 1, 1, 1);
    submit(&r, 1, 1, 1);
    assert_int_equal(scheduler_submit(r.scheduler, &q, prompt, 1, 0), ST_OVERLOADED);
    submit(&r, 1, 1, 2);
    run_all(&r);
    rig_close(&r);
}

static void test_retry_after_grows_with_the_queue(void **state)
{
    struct scheduler_config cfg = roomy;
    int64_t one, many;
    struct rig r;

    (void)state;
    cfg.cost = (struct cost){.base_ns = 20000000, .row_ns = 5000000};
    rig_open(&r, &cfg);
    assert_int_equal(scheduler_retry_after_ms(r.scheduler, 1), 1000);
    for (int i = 0; i < 4; i++)
        submit(&r, 60, 60, 1);
    one = scheduler_retry_after_ms(r.scheduler, 1);
    for (int i = 0; i < 20; i++)
        submit(&r, 60, 60, 1);
    many = scheduler_retry_after_ms(r.scheduler, 1);
    assert_true(one >= 1000 && many > one && many <= 60000);
    /* Nothing of this tenant waits. */
    assert_int_equal(scheduler_retry_after_ms(r.scheduler, 2), 1000);
    run_all(&r);
    rig_close(&r);
}

/* Requests of this length, one after the other, as the history; then what a refusal is told beside a
 * full batch and a queue. */
static int64_t retry_after_outputs_of(struct rig *r, uint32_t n_before, uint32_t max_tokens)
{
    int64_t ms;

    while (n_before-- > 0) {
        r->n_jobs = 0;
        memset(r->jobs, 0, sizeof r->jobs);
        submit(r, 1, max_tokens, 1);
        run_all(r);
    }
    r->n_jobs = 0;
    memset(r->jobs, 0, sizeof r->jobs);
    for (int i = 0; i < 12; i++)
        submit(r, 1, OUTPUT_MAX, 1);
    stepper_turn(&r->stepper);
    ms = scheduler_retry_after_ms(r->scheduler, 1);
    for (uint32_t i = 0; i < r->n_jobs; i++)
        scheduler_cancel(r->scheduler, &r->jobs[i].sequence, ST_CANCELLED, 0);
    run_all(r);
    return ms;
}

/* Also where they grow by less than the average counts at a time. */
static void test_retry_after_follows_the_outputs_that_were(void **state)
{
    struct scheduler_config cfg = roomy;
    int64_t first, shorter, longer;
    struct rig r;

    (void)state;
    cfg.cost = (struct cost){.base_ns = 400000000};
    rig_open(&r, &cfg);
    first = retry_after_outputs_of(&r, 0, 1);
    shorter = retry_after_outputs_of(&r, 200, 1);
    longer = retry_after_outputs_of(&r, 200, 14);
    assert_true(first > longer && longer > 5 * shorter);
    rig_close(&r);
}

/* No request has ended yet; the slowest device, and the fastest. */
static void test_retry_after_is_bounded_from_the_start(void **state)
{
    struct scheduler_config cfg = roomy;
    struct rig r;

    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        cfg.cost = (struct cost){.base_ns = slow * COST_NS_MAX,
                                 .row_ns = slow * COST_NS_MAX,
                                 .attended_ns = slow * COST_ATTENDED_NS_MAX,
                                 .logits_ns = slow * COST_NS_MAX};
        rig_open(&r, &cfg);
        assert_int_equal(scheduler_retry_after_ms(r.scheduler, 1), 1000);
        for (int i = 0; i < 30; i++)
            submit(&r, 60, 60, 1);
        stepper_turn(&r.stepper);
        assert_int_equal(scheduler_retry_after_ms(r.scheduler, 1), slow ? 60000 : 1000);
        run_all(&r);
        rig_close(&r);
    }
}

static void test_a_wait_beyond_its_deadline_is_a_timeout(void **state)
{
    struct scheduler_config cfg = roomy;
    struct job *runs, *waits;
    struct rig r;

    (void)state;
    cfg.max_sequences = 1;
    rig_open(&r, &cfg);
    runs = submit(&r, 4, 10, 1);
    r.jobs[1].sequence.queue_deadline_us = 1; /* the clock is past it */
    waits = submit(&r, 4, 10, 1);
    run_all(&r);
    assert_int_equal(runs->status, ST_OK);
    assert_int_equal(waits->status, ST_TIMEOUT);
    assert_int_equal(waits->n_output, 0);
    rig_close(&r);
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
    struct job *leader, *choice;
    struct rig r;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_open(&r, &roomy);
        fake_device_script.fail_submit_every = cases[i].fail_submit_every;
        r.jobs[0].sequence.queue_deadline_us = cases[i].deadline_us;
        leader = submit(&r, 20, 5, 1);
        choice = submit_like(&r, leader, &leader->sequence);
        if (cases[i].cancels)
            scheduler_cancel(r.scheduler, &leader->sequence, ST_CANCELLED, 0);
        run_all(&r);
        assert_int_equal(leader->status, cases[i].status);
        assert_int_equal(choice->status, cases[i].status);
        assert_int_equal(choice->n_output, 0);
        rig_close(&r);
    }
}

/* ---- random schedules ---- */

static void random_event(struct rig *r)
{
    struct job *j;

    if (random_below(r, 3) != 0 && r->n_jobs < JOBS_MAX) {
        uint32_t most = r->cfg.n_pages * KV_PAGE_TOKENS - 1;

        most = most < r->cfg.max_context - 1 ? most : r->cfg.max_context - 1;
        most = most < PROMPT_MAX ? most : PROMPT_MAX;
        j = submit(r, 1 + random_below(r, most), random_below(r, OUTPUT_MAX), random_below(r, 3));
        j->stops = random_below(r, 2) == 0;
    }
    if (r->n_jobs == 0)
        return;
    j = &r->jobs[random_below(r, r->n_jobs)];
    if (j->n_ends > 0)
        return;
    if (random_below(r, 12) == 0)
        scheduler_cancel(r->scheduler, &j->sequence, ST_CANCELLED, 0);
    else
        j->sequence.held = random_below(r, 3) == 0;
}

static void random_schedule(uint64_t seed)
{
    struct scheduler_config cfg;
    struct rig r = {.random = seed};

    cfg = (struct scheduler_config){.max_sequences = 1 + random_below(&r, 6),
                                    .prefill_rows = 1 + random_below(&r, 24),
                                    .max_context = 20 + random_below(&r, 100),
                                    .n_pages = 2 + random_below(&r, 14),
                                    .queue_max = JOBS_MAX,
                                    .depth = 1 + random_below(&r, 2)};
    rig_open(&r, &cfg);
    r.random = seed;
    if (seed % 4 == 0)
        fake_device_script.fail_complete_every = 50;
    if (seed % 5 == 0)
        fake_device_script.fail_submit_every = 60;
    if (seed % 3 == 0)
        fake_device_script.nan_seed = 1 + random_below(&r, JOBS_MAX);
    for (int i = 0; i < 300; i++) {
        if (random_below(&r, 4) == 0)
            random_event(&r);
        stepper_turn(&r.stepper);
    }
    for (uint32_t i = 0; i < r.n_jobs; i++)
        r.jobs[i].sequence.held = false;
    run_all(&r);
    for (uint32_t i = 0; i < r.n_jobs; i++)
        check_output(&r, &r.jobs[i]);
    rig_close(&r);
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
        cmocka_unit_test(test_a_sequence_runs_to_its_length),
        cmocka_unit_test(test_max_tokens_0_ends_after_the_prompt),
        cmocka_unit_test(test_the_context_is_the_end),
        cmocka_unit_test(test_what_can_never_fit_is_refused),
        cmocka_unit_test(test_a_full_queue_refuses),
        cmocka_unit_test(test_a_long_prompt_does_not_hold_up_decodes),
        cmocka_unit_test(test_tenants_take_turns),
        cmocka_unit_test(test_preemption_changes_no_output_and_counts_nothing_twice),
        cmocka_unit_test(test_a_prompt_that_would_only_be_preempted_waits),
        cmocka_unit_test(test_the_oldest_gets_a_row_in_every_step),
        cmocka_unit_test(test_two_steps_in_flight_name_tokens_by_ticket),
        cmocka_unit_test(test_cancel_frees_pages_within_a_step),
        cmocka_unit_test(test_nan_ends_that_sequence_alone),
        cmocka_unit_test(test_a_failed_step_fails_its_sequences_and_leaks_no_page),
        cmocka_unit_test(test_a_held_sequence_blocks_nobody),
        cmocka_unit_test(test_a_prompt_is_found_up_to_its_last_token),
        cmocka_unit_test(test_without_the_cache_choices_share_and_others_do_not),
        cmocka_unit_test(test_a_tenants_part_of_the_queue_is_bounded),
        cmocka_unit_test(test_retry_after_grows_with_the_queue),
        cmocka_unit_test(test_retry_after_follows_the_outputs_that_were),
        cmocka_unit_test(test_retry_after_is_bounded_from_the_start),
        cmocka_unit_test(test_a_wait_beyond_its_deadline_is_a_timeout),
        cmocka_unit_test(test_choices_of_a_prompt_that_never_ran_end_with_their_leader),
        cmocka_unit_test(test_random_schedules_give_what_each_gives_alone),
    };

    log_init("test", LOG_ERROR + 1); /* failed steps are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
