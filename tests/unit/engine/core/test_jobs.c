/* A job and its choices: that they end together, once, whatever happens to one of them. */
#include "tests/lib/jobs_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "base/log.h"
#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void test_each_choice_has_its_text_and_its_finish(void **state)
{
    static const int32_t ends_itself[] = {JOBS_RIG_BYTE('d'), TINY_IM_END};
    struct wire_submit v = jobs_rig_request(4, 3);
    struct text_span stop = {"2", 1, false};
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    r.says[0] = "abc";
    r.says[1] = "123";
    r.says[2] = "xyz";
    r.ids[3] = ends_itself;
    r.n_ids[3] = COUNT_OF(ends_itself);
    v.stops[0] = stop;
    v.n_stops = 1;
    jobs_rig_submit(&r, &v);
    jobs_rig_run(&r);
    assert_int_equal(jobs_rig_text_is(&r, 0, "abc")->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(jobs_rig_text_is(&r, 1, "1")->finish, ENGINE_FINISH_STOP);
    assert_int_equal(jobs_rig_text_is(&r, 2, "xyz")->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(jobs_rig_text_is(&r, 3, "d")->finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_OK);
    assert_int_equal(r.end.finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(r.end.prompt_tokens, JOBS_RIG_PROMPT);
    assert_int_equal(r.end.output_tokens, 3 + 2 + 3 + 2);
    assert_int_equal(r.output_tokens, r.end.output_tokens);
    jobs_rig_close(&r);
}

static void test_a_cancel_ends_all_choices_with_one_end(void **state)
{
    struct wire_submit v = jobs_rig_request(3, 100);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    jobs_rig_submit(&r, &v);
    while (r.output_tokens < 10)
        assert_true(jobs_rig_turn(&r));
    jobs_rig_cancel(&r, 1);
    jobs_rig_cancel(&r, 1); /* crossed with its end: no fault */
    jobs_rig_run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_CANCELLED);
    assert_int_equal(r.end.finish, ENGINE_FINISH_NONE);
    assert_int_equal(r.end.prompt_tokens, JOBS_RIG_PROMPT);
    assert_int_equal(r.end.output_tokens, r.output_tokens);
    jobs_rig_close(&r);
}

static void test_nan_in_one_choice_ends_them_all_and_costs_nothing(void **state)
{
    struct wire_submit v = jobs_rig_request(3, 100);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    r.bad_choice = 1;
    r.bad_at = 4;
    r.bad_status = ST_INTERNAL;
    jobs_rig_submit(&r, &v);
    jobs_rig_run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_INTERNAL);
    assert_int_equal(r.end.prompt_tokens + r.end.output_tokens, 0);
    assert_true(r.output_tokens >= 3 * 4 && r.output_tokens <= 3 * 5 + 1);
    jobs_rig_close(&r);
}

static void test_a_choice_without_an_allowed_token_ends_them_all_and_is_billed(void **state)
{
    struct wire_submit v = jobs_rig_request(3, 100);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    r.bad_choice = 1;
    r.bad_at = 4;
    r.bad_status = ST_NO_CHOICE;
    jobs_rig_submit(&r, &v);
    jobs_rig_run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_NO_CHOICE);
    assert_int_equal(r.end.prompt_tokens, JOBS_RIG_PROMPT);
    assert_int_equal(r.end.output_tokens, r.output_tokens);
    assert_in_range(r.output_tokens, 3 * 4, 3 * 5 + 1);
    jobs_rig_close(&r);
}

static void test_without_an_allowed_first_token_nothing_is_billed(void **state)
{
    struct wire_submit v = jobs_rig_request(1, 100);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    r.bad_status = ST_NO_CHOICE;
    jobs_rig_submit(&r, &v);
    jobs_rig_run(&r);
    assert_int_equal(r.end.status, ST_NO_CHOICE);
    assert_int_equal(r.end.prompt_tokens + r.end.output_tokens, 0);
    jobs_rig_close(&r);
}

static void test_a_choice_that_is_done_does_not_hide_the_failure_of_another(void **state)
{
    static const int32_t ends_itself[] = {TINY_IM_END};
    struct wire_submit v = jobs_rig_request(2, 100);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    r.ids[0] = ends_itself;
    r.n_ids[0] = 1;
    r.bad_choice = 1;
    r.bad_at = 4;
    r.bad_status = ST_INTERNAL;
    jobs_rig_submit(&r, &v);
    jobs_rig_run(&r);
    assert_int_equal(jobs_rig_text_is(&r, 0, "")->finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_INTERNAL);
    assert_int_equal(r.end.prompt_tokens + r.end.output_tokens, 0);
    jobs_rig_close(&r);
}

static void test_a_failed_step_ends_all_choices_with_one_end(void **state)
{
    struct wire_submit v = jobs_rig_request(3, 100);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    jobs_rig_submit(&r, &v);
    while (r.output_tokens < 10)
        assert_true(jobs_rig_turn(&r));
    r.fails = true;
    jobs_rig_run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_INTERNAL);
    assert_int_equal(r.end.output_tokens, r.output_tokens); /* as for one choice: these were sent */
    jobs_rig_close(&r);
}

static void test_a_queue_without_room_for_all_choices_takes_none(void **state)
{
    struct wire_submit v = jobs_rig_request(4, 8);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 1, 3);
    jobs_rig_submit(&r, &v);
    assert_int_equal(r.jobs.n, 0);
    assert_false(jobs_rig_turn(&r));
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_OVERLOADED);
    assert_in_range(r.end.retry_after_ms, 1000, 60000);
    v.n_choices = 3;
    r.n_finals = 0;
    jobs_rig_submit(&r, &v);
    jobs_rig_run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_OK);
    assert_int_equal(r.end.output_tokens, 3 * 8);
    jobs_rig_close(&r);
}

static void test_more_choices_than_slots_all_get_their_turn(void **state)
{
    struct wire_submit v = jobs_rig_request(4, 2);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 1, 8);
    for (uint32_t i = 0; i < JOBS_RIG_CHOICES; i++)
        r.says[i] = (const char *[]){"aa", "bb", "cc", "dd"}[i];
    jobs_rig_submit(&r, &v);
    jobs_rig_run(&r);
    jobs_rig_text_is(&r, 0, "aa");
    jobs_rig_text_is(&r, 3, "dd");
    assert_int_equal(r.end.status, ST_OK);
    assert_int_equal(r.end.prompt_tokens, JOBS_RIG_PROMPT);
    jobs_rig_close(&r);
}

/* The connection is lost after so many steps: queued, in its prefill, decoding. */
static void lose_connection_after(int n_turns)
{
    struct wire_submit v = jobs_rig_request(3, 100);
    struct jobs_rig r;

    jobs_rig_open(&r, 2, 8);
    jobs_rig_submit(&r, &v);
    while (n_turns-- > 0)
        assert_true(jobs_rig_turn(&r));
    r.output_tokens = 0;
    jobs_drop(&r.jobs, &r.conn, r.now_us);
    jobs_rig_run(&r);
    assert_int_equal(r.n_finals + r.output_tokens, 0); /* nobody is told */
    jobs_rig_close(&r);
}

static void test_jobs_of_a_lost_connection_end_at_any_point(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++)
        lose_connection_after(n);
}

static void test_an_id_outside_the_vocabulary_is_refused_wherever_it_stands(void **state)
{
    static const int32_t outside[] = {TINY_VOCAB};
    static const struct logit_bias bias[] = {{1, 1.0f}, {TINY_VOCAB, 1.0f}};
    struct wire_submit v[] = {jobs_rig_request(1, 8), jobs_rig_request(1, 8),
                              jobs_rig_request(1, 8)};
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 1, 3);
    v[0].prompt = outside;
    v[0].n_prompt = 1;
    v[1].stop_ids = outside;
    v[1].n_stop_ids = 1;
    v[2].sampling.bias = bias;
    v[2].sampling.n_bias = 2;
    for (uint32_t i = 0; i < COUNT_OF(v); i++) {
        r.n_finals = 0;
        jobs_rig_submit(&r, &v[i]);
        assert_false(jobs_rig_turn(&r));
        assert_int_equal(r.n_finals, 1);
        assert_int_equal(r.end.status, ST_INVALID);
    }
    jobs_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_choice_has_its_text_and_its_finish),
        cmocka_unit_test(test_a_cancel_ends_all_choices_with_one_end),
        cmocka_unit_test(test_nan_in_one_choice_ends_them_all_and_costs_nothing),
        cmocka_unit_test(test_a_choice_without_an_allowed_token_ends_them_all_and_is_billed),
        cmocka_unit_test(test_without_an_allowed_first_token_nothing_is_billed),
        cmocka_unit_test(test_a_choice_that_is_done_does_not_hide_the_failure_of_another),
        cmocka_unit_test(test_a_failed_step_ends_all_choices_with_one_end),
        cmocka_unit_test(test_a_queue_without_room_for_all_choices_takes_none),
        cmocka_unit_test(test_more_choices_than_slots_all_get_their_turn),
        cmocka_unit_test(test_jobs_of_a_lost_connection_end_at_any_point),
        cmocka_unit_test(test_an_id_outside_the_vocabulary_is_refused_wherever_it_stands),
    };

    log_init("test", LOG_ERROR + 1); /* refusals are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
