/* Log-probabilities: which tokens come with which text. */
#include "tests/lib/jobs_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/core/job.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define HELLO (TINY_MERGE0 + 3)

static struct wire_submit with_logprobs(uint32_t max_tokens, const char *stop)
{
    struct wire_submit v = jobs_rig_request(1, max_tokens);

    v.sampling.want_logprobs = true;
    v.sampling.top_logprobs = 1;
    v.ignore_eos = true;
    if (stop != NULL) {
        v.stops[0] = (struct text_span){stop, strlen(stop), false};
        v.n_stops = 1;
    }
    return v;
}

static void test_samples_wait_for_a_stop_string_that_does_not_come(void **state)
{
    struct wire_submit v = with_logprobs(8, "llama");
    struct jobs_rig r;

    (void)state;
    jobs_rig_open_saying(&r, &v, "hell!llx");
    while (r.heard[0].n_entries < 4)
        jobs_rig_turn(&r);
    jobs_rig_spells(&r, 0, "he"); /* "ll" is held back, and so are its samples */
    jobs_rig_turn(&r);
    jobs_rig_spells(&r, 0, "hell!");
    jobs_rig_run(&r);
    jobs_rig_spells(&r, 0, "hell!llx");
    assert_int_equal(r.heard[0].n_samples, 8);
    jobs_rig_close(&r);
}

static void test_no_sample_comes_of_a_token_that_a_stop_string_cut_off(void **state)
{
    struct wire_submit v = with_logprobs(12, "llama");
    struct jobs_rig r;

    (void)state;
    jobs_rig_open_saying(&r, &v, "a llama.");
    jobs_rig_run(&r);
    jobs_rig_spells(&r, 0, "a ");
    assert_int_equal(r.heard[0].n_samples, 2);
    assert_int_equal(r.end.output_tokens, 7);
    jobs_rig_close(&r);
}

static void test_a_token_that_a_stop_string_cuts_in_two_has_no_sample(void **state)
{
    static const int32_t ids[] = {JOBS_RIG_BYTE('a'), HELLO};
    struct wire_submit v = with_logprobs(12, "lo");
    struct jobs_rig r;

    (void)state;
    jobs_rig_open_sampling(&r, &v, ids, COUNT_OF(ids));
    jobs_rig_run(&r);
    jobs_rig_text_is(&r, 0, "ahel");
    assert_string_equal(buf_cstr(&r.heard[0].spelled), "a");
    jobs_rig_close(&r);
}

static void test_samples_of_an_emoji_come_with_its_last_byte(void **state)
{
    struct wire_submit v = with_logprobs(6, NULL);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open_saying(&r, &v, "a\U0001F600b");
    while (r.heard[0].n_entries < 4)
        jobs_rig_turn(&r);
    assert_int_equal(jobs_rig_text_is(&r, 0, "a")->n_samples, 1);
    jobs_rig_turn(&r);
    jobs_rig_spells(&r, 0, "a\U0001F600");
    assert_int_equal(r.heard[0].n_samples, 5);
    jobs_rig_run(&r);
    jobs_rig_spells(&r, 0, "a\U0001F600b");
    jobs_rig_close(&r);
}

static void test_samples_that_were_held_back_come_at_the_end(void **state)
{
    struct wire_submit v = with_logprobs(4, "llama");
    struct jobs_rig r;

    (void)state;
    jobs_rig_open_saying(&r, &v, "ball");
    jobs_rig_run(&r);
    jobs_rig_spells(&r, 0, "ball");
    assert_int_equal(r.heard[0].n_samples, 4);
    jobs_rig_close(&r);
}

static void test_half_an_emoji_at_the_end_brings_its_samples(void **state)
{
    struct wire_submit v = with_logprobs(3, NULL);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open_saying(&r, &v, "a\xF0\x9F");
    jobs_rig_run(&r);
    assert_int_equal(jobs_rig_text_is(&r, 0, "a\uFFFD")->n_samples, 3);
    assert_string_equal(buf_cstr(&r.heard[0].spelled), "a\xF0\x9F");
    jobs_rig_close(&r);
}

static void test_tokens_without_text_have_no_sample(void **state)
{
    static const int32_t ids[] = {JOBS_RIG_BYTE('a'), TINY_IM_START, TINY_IM_END,
                                  JOBS_RIG_BYTE('b')};
    struct wire_submit v = with_logprobs(4, NULL);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open_sampling(&r, &v, ids, COUNT_OF(ids));
    jobs_rig_run(&r);
    jobs_rig_spells(&r, 0, "ab");
    assert_int_equal(r.end.output_tokens, 4);
    jobs_rig_close(&r);
}

/* A byte a token: with the last one the queue of samples is full. */
static void test_the_longest_stop_string_holds_back_no_more_than_the_queue_holds(void **state)
{
    static char stop[STOP_STRING_BYTES_MAX + 1], text[STOP_STRING_BYTES_MAX + 4];
    struct wire_submit v;
    struct jobs_rig r;

    (void)state;
    memset(stop, 'a', STOP_STRING_BYTES_MAX);
    memset(text, 'a', STOP_STRING_BYTES_MAX - 1);
    memcpy(text + STOP_STRING_BYTES_MAX - 1, "\U0001F600", 5); /* and a character in four tokens */
    v = with_logprobs(sizeof text - 1, stop);
    jobs_rig_open_saying(&r, &v, text);
    jobs_rig_run(&r);
    assert_int_equal(r.heard[0].n_samples, sizeof text - 1);
    assert_int_equal(r.end.status, ST_OK);
    jobs_rig_close(&r);
}

static void test_scores_of_the_prompt_come_once_before_everything_else(void **state)
{
    struct wire_submit v = jobs_rig_request(2, 3);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    v.sampling.want_prompt_logprobs = true;
    v.sampling.top_logprobs = 1;
    jobs_rig_submit(&r, &v);
    assert_true(r.conn.jobs->choices[0].sequence.sampling.want_prompt_logprobs);
    assert_false(r.conn.jobs->choices[1].sequence.sampling.want_prompt_logprobs);
    while (r.n_prompt_samples < JOBS_RIG_PROMPT - 1) {
        assert_int_equal(r.prompt_tokens + r.output_tokens, 0); /* its prefill is not complete */
        assert_true(jobs_rig_turn(&r));
    }
    jobs_rig_run(&r);
    assert_int_equal(r.n_prompt_samples, JOBS_RIG_PROMPT - 1);
    assert_memory_equal(r.prompt_ids, jobs_rig_prompt + 1,
                        (JOBS_RIG_PROMPT - 1) * sizeof jobs_rig_prompt[0]);
    jobs_rig_text_is(&r, 0, "...");
    jobs_rig_text_is(&r, 1, "...");
    assert_int_equal(r.heard[0].n_samples, 0);
    assert_int_equal(r.end.prompt_tokens, JOBS_RIG_PROMPT);
    jobs_rig_close(&r);
}

static void test_a_prompt_alone_has_scores_and_a_finish(void **state)
{
    struct wire_submit v = jobs_rig_request(1, 0);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    v.sampling.want_prompt_logprobs = true;
    v.sampling.top_logprobs = 1;
    jobs_rig_submit(&r, &v);
    jobs_rig_run(&r);
    assert_int_equal(r.n_prompt_samples, JOBS_RIG_PROMPT - 1);
    assert_int_equal(jobs_rig_text_is(&r, 0, "")->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(r.end.status, ST_OK);
    assert_int_equal(r.end.prompt_tokens, JOBS_RIG_PROMPT);
    assert_int_equal(r.end.output_tokens, 0);
    jobs_rig_close(&r);
}

static void test_a_step_with_many_samples_comes_in_several_frames(void **state)
{
    const struct token_logprob top = {6, -9.0f};
    const struct token_sample t = {5, -5.0f, &top, 1};
    struct wire_submit v = jobs_rig_request(1, 4);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    v.sampling.want_prompt_logprobs = true;
    jobs_rig_submit(&r, &v);
    for (uint32_t i = 1; i <= 20000; i++)
        jobs_events.on_score(&r.jobs, &r.conn.jobs->choices[0].sequence, i, &t);
    jobs_rig_listen(&r);
    assert_int_equal(r.n_prompt_samples, 20000);
    assert_true(r.n_steps > 1);
    assert_true(r.longest_frame < (size_t)300 << 10);
    jobs_rig_cancel(&r, 1);
    jobs_rig_listen(&r);
    jobs_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_wait_for_a_stop_string_that_does_not_come),
        cmocka_unit_test(test_no_sample_comes_of_a_token_that_a_stop_string_cut_off),
        cmocka_unit_test(test_a_token_that_a_stop_string_cuts_in_two_has_no_sample),
        cmocka_unit_test(test_samples_of_an_emoji_come_with_its_last_byte),
        cmocka_unit_test(test_samples_that_were_held_back_come_at_the_end),
        cmocka_unit_test(test_half_an_emoji_at_the_end_brings_its_samples),
        cmocka_unit_test(test_tokens_without_text_have_no_sample),
        cmocka_unit_test(test_the_longest_stop_string_holds_back_no_more_than_the_queue_holds),
        cmocka_unit_test(test_scores_of_the_prompt_come_once_before_everything_else),
        cmocka_unit_test(test_a_prompt_alone_has_scores_and_a_finish),
        cmocka_unit_test(test_a_step_with_many_samples_comes_in_several_frames),
    };

    log_init("test", LOG_ERROR + 1); /* refusals are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
