/* What ends a choice: stop ids and strings, deadlines; and what of a frame reaches the scheduler.
 */
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

static void test_a_stop_id_ends_a_choice_and_gives_no_text(void **state)
{
    static const int32_t stop_ids[] = {JOBS_RIG_BYTE('!'), JOBS_RIG_BYTE('x')};
    struct wire_submit v = jobs_rig_request(2, 8);
    struct jobs_rig r;

    (void)state;
    v.stop_ids = stop_ids;
    v.n_stop_ids = COUNT_OF(stop_ids);
    v.ignore_eos = true; /* stop ids end it all the same */
    v.sampling.want_logprobs = true;
    v.sampling.top_logprobs = 1;
    jobs_rig_open_saying(&r, &v, "hi!..");
    jobs_rig_run(&r);
    jobs_rig_spells(&r, 0, "hi");
    assert_int_equal(r.heard[0].finish, ENGINE_FINISH_STOP);
    jobs_rig_spells(&r, 1, "........");
    assert_int_equal(r.heard[1].finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(r.end.output_tokens, 3 + 8);
    jobs_rig_close(&r);
}

static void test_a_stop_string_that_half_a_character_completes_is_a_stop(void **state)
{
    struct wire_submit v = jobs_rig_request(1, 3);
    struct jobs_rig r;

    (void)state;
    v.stops[0] = (struct text_span){"\uFFFD", 3, false};
    v.n_stops = 1;
    jobs_rig_open_saying(&r, &v, "a\xF0\x9F");
    jobs_rig_run(&r);
    jobs_rig_text_is(&r, 0, "a");
    assert_int_equal(r.heard[0].finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.end.finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.end.output_tokens, 3);
    jobs_rig_close(&r);
}

static void test_stop_strings_are_not_looked_for_before_min_tokens(void **state)
{
    struct wire_submit v = jobs_rig_request(1, 12);
    struct jobs_rig r;

    (void)state;
    v.sampling.min_tokens = 5;
    v.stops[0] = (struct text_span){"ab", 2, false};
    v.n_stops = 1;
    /* the second begins before and ends after: it is none either */
    jobs_rig_open_saying(&r, &v, "xabxabxabx");
    jobs_rig_run(&r);
    jobs_rig_text_is(&r, 0, "xabxabx");
    assert_int_equal(r.heard[0].finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.end.output_tokens, 9);
    jobs_rig_close(&r);
}

static bool holds(const struct sampling *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_end_ids; i++)
        if (s->end_ids[i] == id)
            return true;
    return false;
}

static void test_what_min_tokens_forbids_is_every_id_that_would_end_the_choice(void **state)
{
    static const int32_t stop_ids[] = {JOBS_RIG_BYTE('!')};
    struct wire_submit v = jobs_rig_request(2, 1);
    const struct sampling *s;
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    v.stop_ids = stop_ids;
    v.n_stop_ids = 1;
    for (int ignore_eos = 0; ignore_eos < 2; ignore_eos++) {
        v.ignore_eos = ignore_eos != 0;
        jobs_rig_submit(&r, &v);
        s = &r.conn.jobs->choices[1].sequence.sampling;
        assert_true(holds(s, JOBS_RIG_BYTE('!')));
        assert_int_equal(holds(s, TINY_IM_END), !v.ignore_eos);
        assert_int_equal(s->choice, 1);
        jobs_rig_cancel(&r, 1);
    }
    jobs_rig_listen(&r);
    jobs_rig_close(&r);
}

static void test_the_deadline_in_the_queue_is_the_first_choices(void **state)
{
    struct wire_submit v = jobs_rig_request(2, 1);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    v.queue_max_ms = 7;
    jobs_rig_submit(&r, &v);
    assert_int_equal(r.conn.jobs->choices[0].sequence.queue_deadline_us, r.now_us + 7000);
    assert_int_equal(r.conn.jobs->choices[1].sequence.queue_deadline_us, 0);
    assert_ptr_equal(r.conn.jobs->choices[1].sequence.leader, &r.conn.jobs->choices[0].sequence);
    assert_null(r.conn.jobs->choices[0].sequence.leader);
    jobs_rig_run(&r);
    jobs_rig_close(&r);
}

static void test_a_job_that_waited_too_long_ends_whole_and_says_when_to_retry(void **state)
{
    struct wire_submit v = jobs_rig_request(3, 8);
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    v.queue_max_ms = 7;
    jobs_rig_submit(&r, &v);
    r.now_us += 7001;
    jobs_rig_run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_TIMEOUT);
    assert_int_equal(r.end.prompt_tokens + r.end.output_tokens, 0);
    assert_in_range(r.end.retry_after_ms, 1000, 60000);
    assert_true(r.end.queue_us >= 7000);
    jobs_rig_close(&r);
}

static void test_pages_are_of_the_salt_in_the_frame_and_of_this_engine(void **state)
{
    struct wire_submit v = jobs_rig_request(2, 1);
    const struct cache_domain *first, *second;
    struct jobs_rig r;

    (void)state;
    jobs_rig_open(&r, 8, 8);
    memset(v.salt, 0xA5, sizeof v.salt);
    jobs_rig_submit(&r, &v);
    first = r.conn.jobs->choices[0].sequence.cache;
    second = r.conn.jobs->choices[1].sequence.cache;
    assert_ptr_equal(first, second);
    assert_memory_equal(first->salt, v.salt, sizeof v.salt);
    assert_string_equal(first->revision, "r1");
    assert_true(first->mode == DEVICE_EXACT && first->kv_type == 3 && !first->has_adapter);
    jobs_rig_run(&r);
    jobs_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stop_id_ends_a_choice_and_gives_no_text),
        cmocka_unit_test(test_a_stop_string_that_half_a_character_completes_is_a_stop),
        cmocka_unit_test(test_stop_strings_are_not_looked_for_before_min_tokens),
        cmocka_unit_test(test_what_min_tokens_forbids_is_every_id_that_would_end_the_choice),
        cmocka_unit_test(test_the_deadline_in_the_queue_is_the_first_choices),
        cmocka_unit_test(test_a_job_that_waited_too_long_ends_whole_and_says_when_to_retry),
        cmocka_unit_test(test_pages_are_of_the_salt_in_the_frame_and_of_this_engine),
    };

    log_init("test", LOG_ERROR + 1); /* refusals are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
