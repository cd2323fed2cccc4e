/* What steps are made of, and what becomes of sequences in them. */
#include "tests/lib/scheduler_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

static void test_a_sequence_runs_to_its_length(void **state)
{
    struct scheduler_rig r;
    struct rig_sequence *j;

    (void)state;
    scheduler_rig_open(&r, &scheduler_rig_roomy);
    j = scheduler_rig_submit(&r, 20, 10, 1);
    scheduler_rig_run(&r);
    assert_int_equal(j->n_output, 10);
    scheduler_rig_check(&r, j);
    scheduler_rig_close(&r);
}

static void test_max_tokens_0_ends_after_the_prompt(void **state)
{
    struct scheduler_stats st;
    struct scheduler_rig r;
    struct rig_sequence *j;

    (void)state;
    scheduler_rig_open(&r, &scheduler_rig_roomy);
    j = scheduler_rig_submit(&r, 20, 0, 1);
    scheduler_rig_run(&r);
    scheduler_stats(r.scheduler, &st);
    assert_int_equal(j->status, ST_OK);
    assert_int_equal(j->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j->n_output, 0);
    assert_true(j->prefilled_at_end);
    assert_int_equal(st.prompt_tokens, 20);
    scheduler_rig_close(&r);
}

static void test_the_context_is_the_end(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct scheduler_rig r;
    struct rig_sequence *j;

    (void)state;
    cfg.max_context = 25;
    scheduler_rig_open(&r, &cfg);
    j = scheduler_rig_submit(&r, 20, 70, 1);
    scheduler_rig_run(&r);
    assert_int_equal(j->n_output, 5);
    assert_int_equal(j->finish, ENGINE_FINISH_LENGTH);
    scheduler_rig_close(&r);
}

static void test_what_can_never_fit_is_refused(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct sequence q = {.max_tokens = 1};
    int32_t prompt[64] = {0};
    struct scheduler_rig r;

    (void)state;
    cfg.n_pages = 3; /* 48 tokens */
    scheduler_rig_open(&r, &cfg);
    assert_int_equal(scheduler_submit(r.scheduler, &q, prompt, 48, 0), ST_TOO_LONG);
    assert_int_equal(scheduler_submit(r.scheduler, &q, prompt, 49, 0), ST_TOO_LONG);
    scheduler_rig_submit(&r, 47, 1, 1);
    scheduler_rig_submit(&r, 48, 0, 1);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

static void test_a_long_prompt_does_not_hold_up_decodes(void **state)
{
    struct scheduler_rig r;
    struct rig_sequence *decoding, *late;
    uint32_t before;

    (void)state;
    scheduler_rig_open(&r, &scheduler_rig_roomy);
    decoding = scheduler_rig_submit(&r, 1, 50, 1);
    stepper_turn(&r.stepper);
    late = scheduler_rig_submit(&r, 60, 1, 2);
    before = decoding->n_output;
    for (int i = 0; i < 7; i++) /* 60 rows at 8 a step: 8 steps */
        stepper_turn(&r.stepper);
    assert_int_equal(late->n_output, 0);
    assert_int_equal(decoding->n_output, before + 7);
    stepper_turn(&r.stepper);
    assert_int_equal(late->n_output, 1);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

static void test_tenants_take_turns(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct rig_sequence *first[3], *other;
    struct scheduler_rig r;

    (void)state;
    cfg.max_sequences = 1;
    scheduler_rig_open(&r, &cfg);
    for (int i = 0; i < 3; i++)
        first[i] = scheduler_rig_submit(&r, 4, 4, 1);
    other = scheduler_rig_submit(&r, 4, 4, 2);
    while (other->n_ends == 0)
        assert_true(stepper_turn(&r.stepper));
    assert_int_equal(first[0]->n_ends, 1);
    assert_int_equal(first[1]->n_ends, 0);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

static void under_page_pressure(uint32_t depth)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct scheduler_stats st;
    struct scheduler_rig r;

    cfg.n_pages = 6; /* 96 tokens for four sequences of 80 */
    cfg.depth = depth;
    scheduler_rig_open(&r, &cfg);
    for (int i = 0; i < 4; i++)
        scheduler_rig_submit(&r, 20, 60, 1);
    scheduler_rig_run(&r);
    scheduler_stats(r.scheduler, &st);
    assert_true(st.preemptions > 0);
    assert_int_equal(st.prompt_tokens, 4 * 20);
    assert_int_equal(st.output_tokens, 4 * 60);
    for (uint32_t i = 0; i < r.n_jobs; i++) {
        assert_int_equal(r.jobs[i].status, ST_OK);
        scheduler_rig_check(&r, &r.jobs[i]);
    }
    scheduler_rig_close(&r);
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
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct rig_sequence *oldest;
    struct scheduler_rig r;
    uint32_t turns = 0;

    cfg.n_pages = 5;
    cfg.depth = depth;
    scheduler_rig_open(&r, &cfg);
    oldest = scheduler_rig_submit(&r, 16, 60, 1);
    for (int i = 0; i < 8; i++)
        scheduler_rig_submit(&r, 20, 50, (uint64_t)i);
    for (; oldest->n_ends == 0; turns++)
        assert_true(stepper_turn(&r.stepper));
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
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
    struct scheduler_rig r;

    (void)state;
    scheduler_rig_open(&r, &cfg);
    scheduler_rig_submit(&r, 60, 10, 1);
    scheduler_rig_submit(&r, 48, 4, 2);
    scheduler_rig_run(&r);
    scheduler_stats(r.scheduler, &st);
    assert_int_equal(st.preemptions, 0);
    scheduler_rig_close(&r);
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
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct scheduler_rig r;

    (void)state;
    cfg.depth = 2;
    scheduler_rig_open(&r, &cfg);
    for (int i = 0; i < 4; i++)
        scheduler_rig_submit(&r, 10, 40, 1)->stops = true;
    scheduler_rig_run(&r);
    assert_true(fake_device_ticket_rows(r.device) > 20);
    for (uint32_t i = 0; i < r.n_jobs; i++)
        scheduler_rig_check(&r, &r.jobs[i]);
    scheduler_rig_close(&r);
}

static void test_cancel_frees_pages_within_a_step(void **state)
{
    struct scheduler_stats st;
    struct rig_sequence *j;
    struct scheduler_rig r;

    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct scheduler_config cfg = scheduler_rig_roomy;

        cfg.depth = depth;
        scheduler_rig_open(&r, &cfg);
        j = scheduler_rig_submit(&r, 40, 50, 1);
        for (int i = 0; i < 10; i++)
            stepper_turn(&r.stepper);
        scheduler_cancel(r.scheduler, &j->sequence, ST_CANCELLED, 0);
        assert_int_equal(j->n_ends, 1);
        stepper_turn(&r.stepper);
        scheduler_stats(r.scheduler, &st);
        assert_int_equal(st.pages_used, 0);
        assert_int_equal(j->status, ST_CANCELLED);
        scheduler_rig_close(&r);
    }
}

static void test_nan_ends_that_sequence_alone(void **state)
{
    struct rig_sequence *bad, *good;
    struct scheduler_rig r;

    (void)state;
    scheduler_rig_open(&r, &scheduler_rig_roomy);
    good = scheduler_rig_submit(&r, 10, 30, 1);
    bad = scheduler_rig_submit(&r, 10, 30, 1);
    fake_device_script.nan_seed = bad->sequence.sampling.seed;
    fake_device_script.nan_after = 5;
    scheduler_rig_run(&r);
    assert_int_equal(bad->status, ST_INTERNAL);
    assert_int_equal(bad->n_output, 5);
    assert_int_equal(good->status, ST_OK);
    scheduler_rig_check(&r, good);
    scheduler_rig_close(&r);
}

static void test_a_failed_step_fails_its_sequences_and_leaks_no_page(void **state)
{
    struct rig_sequence *late;
    struct scheduler_rig r;

    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct scheduler_config cfg = scheduler_rig_roomy;

        cfg.depth = depth;
        scheduler_rig_open(&r, &cfg);
        for (int i = 0; i < 4; i++)
            scheduler_rig_submit(&r, 10, 70, 1);
        fake_device_script.fail_complete_every = 12;
        for (int i = 0; i < 13; i++)
            stepper_turn(&r.stepper);
        fake_device_script.fail_complete_every = 0;
        for (int i = 0; i < 4; i++)
            assert_int_equal(r.jobs[i].status, ST_INTERNAL);
        late = scheduler_rig_submit(&r, 10, 20, 1);
        scheduler_rig_run(&r);
        assert_int_equal(late->status, ST_OK);
        scheduler_rig_check(&r, late);
        scheduler_rig_close(&r);
    }
}

static void test_a_held_sequence_blocks_nobody(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct rig_sequence *held[2], *other;
    struct scheduler_rig r;

    (void)state;
    cfg.max_sequences = 2;
    cfg.n_pages = 5;
    scheduler_rig_open(&r, &cfg);
    held[0] = scheduler_rig_submit(&r, 30, 30, 1);
    held[1] = scheduler_rig_submit(&r, 30, 30, 1);
    for (int i = 0; i < 5; i++)
        stepper_turn(&r.stepper);
    held[0]->sequence.held = held[1]->sequence.held = true;
    other = scheduler_rig_submit(&r, 40, 40, 2);
    scheduler_rig_run(&r);
    assert_int_equal(other->n_ends, 1);
    assert_int_equal(other->n_output, 40);
    assert_int_equal(held[0]->n_ends + held[1]->n_ends, 0);
    held[0]->sequence.held = held[1]->sequence.held = false;
    scheduler_rig_run(&r);
    for (uint32_t i = 0; i < r.n_jobs; i++)
        scheduler_rig_check(&r, &r.jobs[i]);
    scheduler_rig_close(&r);
}

/* Rows of the prompts in the first step: 8 for all of them. */
static void test_half_of_the_prompts_part_is_for_the_shortest(void **state)
{
    struct rig_sequence *longer, *shorter;
    const struct scheduled_step *t;
    struct scheduler_rig r;

    (void)state;
    scheduler_rig_open(&r, &scheduler_rig_roomy);
    longer = scheduler_rig_submit(&r, 60, 1, 1);
    stepper_turn(&r.stepper);
    shorter = scheduler_rig_submit(&r, 40, 1, 1);
    stepper_turn(&r.stepper);
    t = scheduler_build(r.scheduler, 1000000);
    assert_int_equal(t->n_entries, 2);
    assert_ptr_equal(t->entries[0].sequence, &longer->sequence);
    assert_int_equal(t->entries[0].n_rows, 4);
    assert_ptr_equal(t->entries[1].sequence, &shorter->sequence);
    assert_int_equal(t->entries[1].n_rows, 4);
    scheduler_fail(r.scheduler, scheduler_oldest(r.scheduler), 1000000);
    scheduler_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sequence_runs_to_its_length),
        cmocka_unit_test(test_max_tokens_0_ends_after_the_prompt),
        cmocka_unit_test(test_the_context_is_the_end),
        cmocka_unit_test(test_what_can_never_fit_is_refused),
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
        cmocka_unit_test(test_half_of_the_prompts_part_is_for_the_shortest),
    };

    log_init("test", LOG_ERROR + 1); /* failed steps are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
