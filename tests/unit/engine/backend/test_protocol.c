/* One side of the protocol is played by hand, and breaks it. */
#include "engine/backend/backend.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/core/listener.h"
#include "engine/wire/wire.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/fake_device.h"
#include "tests/lib/hand_engine.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/poll_loop.h"

static const int32_t prompt[] = {10, 20, 30, 40};

static struct engine_submit request(void)
{
    return (struct engine_submit){
        .prompt = prompt, .n_prompt = COUNT_OF(prompt), .max_tokens = 8, .ignore_eos = true};
}

/* ---- a gateway by hand ---- */

static void put_hello(struct buf *b)
{
    wire_put_hello(b, &(struct wire_hello){WIRE_VERSION_MIN, WIRE_VERSION_MAX, "hand"});
}

static void put_submit(struct buf *b, uint64_t job)
{
    wire_put_submit(b, &(struct wire_submit){.job = job,
                                             .weight = 1000,
                                             .max_tokens = 400,
                                             .n_choices = 1,
                                             .sampling = {.top_p = 1.0f},
                                             .ignore_eos = true,
                                             .n_prompt = COUNT_OF(prompt),
                                             .prompt = prompt});
}

static void put_two_greetings(struct buf *b)
{
    put_hello(b);
    put_hello(b);
}

static void put_job_before_greeting(struct buf *b)
{
    put_submit(b, 1);
}

static void put_same_job_twice(struct buf *b)
{
    put_hello(b);
    put_submit(b, 1);
    put_submit(b, 1);
}

static void put_credit_never_given(struct buf *b)
{
    put_hello(b);
    wire_put_credit(b, 1u << 20);
}

static void put_frame_of_the_engine(struct buf *b)
{
    put_hello(b);
    wire_put_stats(b, &(struct wire_stats){.running = 1});
}

static void put_greeting_of_no_version(struct buf *b)
{
    wire_put_hello(b, &(struct wire_hello){WIRE_VERSION_MAX + 1, WIRE_VERSION_MAX + 2, "late"});
}

/* True when the engine closes; what it says before is passed over. */
static bool is_cut_off(const struct engine_rig *r, void (*put)(struct buf *b))
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 10};
    int64_t until_ms = clock_mono_ms() + 10000;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    char drop[4096];
    struct buf b;
    ssize_t n = 1;

    buf_init(&b);
    put(&b);
    strcpy(a.sun_path, r->socket_path);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    hand_engine_send(fd, &b);
    while (n > 0 && clock_mono_ms() < until_ms)
        n = recv(fd, drop, sizeof drop, 0);
    buf_dispose(&b);
    close(fd);
    return n == 0 || (n == -1 && errno == ECONNRESET);
}

static void test_a_gateway_that_breaks_the_rules_is_cut_off_and_nobody_else(void **state)
{
    void (*const broken[])(struct buf * b) = {put_two_greetings,       put_job_before_greeting,
                                              put_same_job_twice,      put_credit_never_given,
                                              put_frame_of_the_engine, put_greeting_of_no_version};
    struct engine_submit s = request();
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    for (size_t i = 0; i < COUNT_OF(broken); i++)
        if (!is_cut_off(&r, broken[i]))
            fail_msg("case %zu is not cut off", i);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OK);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_an_id_outside_the_vocabulary_fails_its_job_alone(void **state)
{
    static const int32_t outside[] = {10, TINY_VOCAB};
    struct engine_submit good = request(), bad = request();
    struct rig_job j = {0}, k = {0};
    struct engine_rig r;

    (void)state;
    bad.prompt = outside;
    bad.n_prompt = COUNT_OF(outside);
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    assert_int_equal(rig_job_submit(&r, &j, &good), ST_OK);
    assert_int_equal(rig_job_submit(&r, &k, &bad), ST_OK);
    rig_job_await(&r, &k);
    rig_job_await(&r, &j);
    assert_int_equal(k.end.status, ST_INVALID);
    assert_int_equal(k.end.usage.prompt_tokens, 0);
    assert_int_equal(j.end.status, ST_OK);
    rig_job_dispose(&j);
    rig_job_dispose(&k);
    engine_rig_close(&r);
}

/* ---- an engine by hand ---- */

#define FIRST_JOB ((uint64_t)1 << 32) /* as the link numbers them */

static void put_step(struct buf *b, uint64_t job, uint32_t n_output, const char *text)
{
    struct buf step;

    buf_init(&step);
    wire_step_begin(&step, 1);
    wire_step_add(&step, &(struct wire_step_entry){.job = job,
                                                   .prompt_tokens = COUNT_OF(prompt),
                                                   .output_tokens = n_output,
                                                   .text = text,
                                                   .text_len = (uint32_t)strlen(text)});
    wire_step_end(&step);
    buf_append(b, step.data, step.len);
    buf_dispose(&step);
}

static void put_half_a_character(struct buf *b)
{
    put_step(b, FIRST_JOB, 3, "\xC3");
}

static void put_tokens_of_a_strangers_job(struct buf *b)
{
    put_step(b, FIRST_JOB + 7, 3, "x");
}

static void put_a_count_that_falls(struct buf *b)
{
    put_step(b, FIRST_JOB, 3, "abc");
    put_step(b, FIRST_JOB, 2, "d");
}

static void put_an_end_without_a_reason(struct buf *b)
{
    wire_put_final(b, &(struct wire_final){.job = FIRST_JOB, .status = ST_OK});
}

static void put_entry(struct buf *b, struct wire_step_entry *e)
{
    struct buf step;

    e->job = FIRST_JOB;
    e->text = "";
    e->output_tokens = 3;
    buf_init(&step);
    wire_step_begin(&step, 1);
    wire_step_add(&step, e);
    wire_step_end(&step);
    buf_append(b, step.data, step.len);
    buf_dispose(&step);
}

static void put_a_choice_not_asked_for(struct buf *b)
{
    put_entry(b, &(struct wire_step_entry){.choice = 1});
}

static void put_more_of_a_choice_that_ended(struct buf *b)
{
    put_entry(b, &(struct wire_step_entry){.finish = ENGINE_FINISH_STOP});
    put_entry(b, &(struct wire_step_entry){.finish = ENGINE_FINISH_NONE});
}

static void put_an_end_before_its_choice_ended(struct buf *b)
{
    wire_put_final(
        b, &(struct wire_final){.job = FIRST_JOB, .status = ST_OK, .finish = ENGINE_FINISH_STOP});
}

static void put_samples_not_asked_for(struct buf *b)
{
    const struct token_sample t = {.id = 1, .logprob = -1.0f};

    put_entry(b, &(struct wire_step_entry){.n_tokens = 1, .tokens = &t});
}

static void put_scores_not_asked_for(struct buf *b)
{
    const struct token_sample t = {.id = 1, .logprob = -1.0f};

    put_entry(b, &(struct wire_step_entry){.is_prompt = true, .n_tokens = 1, .tokens = &t});
}

static void put_a_second_welcome(struct buf *b)
{
    wire_put_welcome(b, &(struct wire_welcome){.version = WIRE_VERSION_MAX,
                                               .max_sequences = 1,
                                               .max_context = 1,
                                               .credit_bytes = 1});
}

static void put_a_handover_with_a_body(struct buf *b)
{
    static const uint8_t frame[] = {3, 0, 0, 0, WIRE_HANDOVER, 0, 1};

    buf_append(b, frame, sizeof frame);
}

static void check_engine_is_left(void (*put)(struct buf *b), size_t which)
{
    struct engine_submit s = request();
    struct hand_engine h;
    struct rig_job j = {0};
    struct engine_rig r;
    struct buf b;

    buf_init(&b);
    hand_engine_open(&h, &r, NULL, 0);
    engine_rig_await_ready(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    put(&b);
    hand_engine_send(h.fd, &b);
    rig_job_await(&r, &j);
    if (j.end.status != ST_UNAVAILABLE || engine_link_is_ready(r.link))
        fail_msg("case %zu is believed", which);
    buf_dispose(&b);
    rig_job_dispose(&j);
    hand_engine_close(&h);
}

static void test_an_engine_that_breaks_the_rules_is_left(void **state)
{
    void (*const broken[])(struct buf * b) = {put_half_a_character,
                                              put_tokens_of_a_strangers_job,
                                              put_a_count_that_falls,
                                              put_an_end_without_a_reason,
                                              put_a_second_welcome,
                                              put_a_choice_not_asked_for,
                                              put_more_of_a_choice_that_ended,
                                              put_an_end_before_its_choice_ended,
                                              put_samples_not_asked_for,
                                              put_scores_not_asked_for,
                                              put_a_handover_with_a_body};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(broken); i++)
        check_engine_is_left(broken[i], i);
}

static void test_an_engine_with_less_context_is_never_ready(void **state)
{
    struct hand_engine h;
    struct engine_rig r;

    (void)state;
    hand_engine_open(&h, &r, NULL, 511);
    hand_engine_await_left(&h);
    assert_false(engine_link_is_ready(r.link));
    hand_engine_close(&h);
}

static void test_a_silent_engine_ends_its_jobs(void **state)
{
    struct engine_submit s = request();
    struct hand_engine h = {.fd = -1};
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    hand_engine_open(&h, &r, NULL, 512);
    engine_rig_await_ready(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    poll_loop_skip(r.loop, RIG_SILENCE_MS / 2);
    poll_loop_turn(r.loop, 0);
    assert_int_equal(j.n_ends, 0);
    poll_loop_skip(r.loop, RIG_SILENCE_MS / 2);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_UNAVAILABLE);
    rig_job_dispose(&j);
    hand_engine_close(&h);
}

static bool is_stalled(void *arg)
{
    struct engine_rig *r = arg;
    struct engine_stats st;

    engine_stats(r->engine, &st);
    return st.stalled;
}

static bool is_told(void *arg)
{
    struct engine_rig *r = arg;
    struct engine_stats st;

    engine_stats(r->engine, &st);
    return st.waiting == 1;
}

/* It answers, and does nothing. */
static void test_an_engine_without_steps_is_stalled(void **state)
{
    struct wire_stats v = {.waiting = 1, .last_step_age_ms = 0};
    struct hand_engine h = {.fd = -1};
    struct engine_rig r;
    struct buf b;

    (void)state;
    buf_init(&b);
    hand_engine_open(&h, &r, NULL, 512);
    engine_rig_await_ready(&r);
    wire_put_stats(&b, &v);
    hand_engine_send(h.fd, &b);
    engine_rig_await(&r, is_told, &r);
    assert_false(is_stalled(&r));
    buf_clear(&b);
    v.last_step_age_ms = RIG_SILENCE_MS;
    wire_put_stats(&b, &v);
    hand_engine_send(h.fd, &b);
    engine_rig_await(&r, is_stalled, &r);
    assert_true(engine_link_is_ready(r.link));
    buf_dispose(&b);
    hand_engine_close(&h);
}

static void test_a_greeting_without_answer_is_made_anew(void **state)
{
    struct hand_engine h = {.fd = -1};
    struct engine_rig r;
    int first;

    (void)state;
    hand_engine_listen(&h, &r);
    poll_loop_skip(r.loop, 4000);
    poll_loop_turn(r.loop, 0);
    assert_false(hand_engine_has_left(&h));
    poll_loop_skip(r.loop, 1000);
    engine_rig_await(&r, hand_engine_has_left, &h);
    first = h.fd;
    engine_rig_await(&r, hand_engine_has_come, &h);
    close(first);
    hand_engine_close(&h);
}

static bool says_why(void *arg)
{
    struct engine_rig *r = arg;
    struct engine_stats st;

    engine_stats(r->engine, &st);
    return !st.connected && strcmp(st.absence, "stopped after 5 crashes") == 0;
}

static void test_who_stands_in_for_the_engine_is_heard_and_asked_again_soon(void **state)
{
    struct wire_refused refused = {.status = ST_UNAVAILABLE, .text = "stopped after 5 crashes"};
    struct hand_engine h = {.fd = -1};
    struct engine_rig r;
    struct buf b;

    (void)state;
    buf_init(&b);
    wire_put_refused(&b, &refused);
    hand_engine_listen(&h, &r);
    hand_engine_send(h.fd, &b);
    engine_rig_await(&r, says_why, &r);
    close(h.fd);
    poll_loop_skip(r.loop, 200); /* not the 2 s of a lasting refusal */
    poll_loop_turn(r.loop, 0);
    assert_true(hand_engine_has_come(&h));
    buf_dispose(&b);
    hand_engine_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_gateway_that_breaks_the_rules_is_cut_off_and_nobody_else),
        cmocka_unit_test(test_an_id_outside_the_vocabulary_fails_its_job_alone),
        cmocka_unit_test(test_an_engine_that_breaks_the_rules_is_left),
        cmocka_unit_test(test_an_engine_with_less_context_is_never_ready),
        cmocka_unit_test(test_a_silent_engine_ends_its_jobs),
        cmocka_unit_test(test_an_engine_without_steps_is_stalled),
        cmocka_unit_test(test_a_greeting_without_answer_is_made_anew),
        cmocka_unit_test(test_who_stands_in_for_the_engine_is_heard_and_asked_again_soon),
    };

    log_init("test", LOG_ERROR + 1); /* broken connections are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
