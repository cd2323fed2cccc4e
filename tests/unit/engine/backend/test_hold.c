/* Jobs for a model that was unloaded while idle wait at the gateway's side. The engine, and who
 * stands in for it, are played by hand, and time is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/wire/wire.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/hand_engine.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define HELD_MAX 1024 /* of a link; process_hold.c */

static const int32_t prompt[] = {10, 20, 30, 40};

struct sleeper {
    struct hand_engine h;
    struct engine_rig r;
    struct rig_job j;
};

static struct engine_submit request(void)
{
    return (struct engine_submit){
        .prompt = prompt, .n_prompt = COUNT_OF(prompt), .max_tokens = 8, .ignore_eos = true};
}

static enum status submit_of(struct sleeper *s, uint64_t tenant, struct rig_job *j)
{
    struct engine_submit v = request();

    v.tenant = tenant;
    return rig_job_submit(&s->r, j, &v);
}

static enum status submit(struct sleeper *s, struct rig_job *j)
{
    return submit_of(s, 0, j);
}

static void say(struct sleeper *s, struct buf *b)
{
    hand_engine_send(s->h.fd, b);
    buf_dispose(b);
}

static void hang_up(struct sleeper *s)
{
    close(s->h.fd);
    s->h.fd = -1;
}

/* The frame that the link has sent, by itself; its type, and for SUBMIT the job's number. */
static uint16_t next_frame(struct sleeper *s, uint64_t *job)
{
    struct timeval patience = {.tv_sec = 10};
    struct buf scratch = {0};
    struct wire_frame f;
    struct wire_submit v;
    char in[1024];
    size_t used;
    ssize_t n;

    assert_int_equal(setsockopt(s->h.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    n = recv(s->h.fd, in, sizeof in, 0);
    assert_true(n > 0);
    assert_int_equal(wire_scan(in, (size_t)n, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(used, n);
    if (f.type == WIRE_SUBMIT) {
        assert_int_equal(wire_get_submit(&f, &scratch, &v), ST_OK);
        *job = v.job;
    }
    buf_dispose(&scratch);
    return f.type;
}

static void expect(struct sleeper *s, uint16_t type)
{
    engine_rig_await(&s->r, hand_engine_has_come, &s->h);
    assert_int_equal(next_frame(s, NULL), type);
}

static void refuse(struct sleeper *s, enum status status)
{
    struct wire_refused v = {.status = (uint16_t)status, .text = "nobody asked for it"};
    struct buf b;

    buf_init(&b);
    wire_put_refused(&b, &v);
    say(s, &b);
    hand_engine_await_left(&s->h);
    hang_up(s);
}

static void welcome(struct sleeper *s)
{
    struct wire_welcome w = {.version = WIRE_VERSION_MAX,
                             .max_sequences = 1,
                             .max_context = s->r.revision->context_tokens,
                             .credit_bytes = 1000};
    struct buf b;

    strcpy(w.revision, s->r.revision->hex);
    buf_init(&b);
    wire_put_welcome(&b, &w);
    say(s, &b);
}

static void say_end(struct sleeper *s, uint64_t job)
{
    const struct wire_step_entry e = {.job = job,
                                      .finish = ENGINE_FINISH_LENGTH,
                                      .prompt_tokens = COUNT_OF(prompt),
                                      .output_tokens = 8,
                                      .text = "done",
                                      .text_len = 4};
    struct buf b;

    buf_init(&b);
    wire_step_begin(&b, 1);
    wire_step_add(&b, &e);
    wire_step_end(&b);
    hand_engine_send(s->h.fd, &b);
    buf_clear(&b);
    wire_put_final(&b, &(struct wire_final){.job = job,
                                            .status = ST_OK,
                                            .finish = ENGINE_FINISH_LENGTH,
                                            .prompt_tokens = COUNT_OF(prompt),
                                            .output_tokens = 8});
    say(s, &b);
}

static bool is_asleep(void *arg)
{
    struct sleeper *s = arg;
    struct engine_stats st;

    engine_stats(s->r.engine, &st);
    return st.asleep;
}

/* Somebody stands in for an engine that sleeps. */
static int setup(void **state)
{
    struct sleeper *s = calloc(1, sizeof *s);

    hand_engine_listen(&s->h, &s->r);
    assert_int_equal(next_frame(s, NULL), WIRE_HELLO);
    refuse(s, ST_ASLEEP);
    engine_rig_await(&s->r, is_asleep, s);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct sleeper *s = *state;

    rig_job_dispose(&s->j);
    hand_engine_close(&s->h);
    free(s);
    return 0;
}

static bool has_ended(void *arg)
{
    return ((struct rig_job *)arg)->n_ends > 0;
}

/* ---- held ---- */

static void a_job_wakes_it_waits_and_is_sent_once_it_greets(void **state)
{
    struct sleeper *s = *state;
    uint64_t job = 0;

    assert_true(engine_link_is_ready(s->r.link));
    assert_int_equal(submit(s, &s->j), ST_OK);
    expect(s, WIRE_HELLO);
    refuse(s, ST_ASLEEP);
    expect(s, WIRE_WAKE);
    refuse(s, ST_ASLEEP);
    expect(s, WIRE_HELLO);
    welcome(s);
    while (job == 0) {
        poll_loop_turn(s->r.loop, 10);
        if (recv(s->h.fd, &job, 1, MSG_PEEK | MSG_DONTWAIT) == 1)
            assert_int_equal(next_frame(s, &job), WIRE_SUBMIT);
    }
    say_end(s, job);
    engine_rig_await(&s->r, has_ended, &s->j);
    assert_int_equal(s->j.end.status, ST_OK);
    assert_int_equal(s->j.end.usage.output_tokens, 8);
    assert_false(is_asleep(s));
}

static void nobody_is_woken_without_a_job(void **state)
{
    struct sleeper *s = *state;

    poll_loop_skip(s->r.loop, 2000);
    expect(s, WIRE_HELLO);
    refuse(s, ST_ASLEEP);
    poll_loop_skip(s->r.loop, 2000);
    expect(s, WIRE_HELLO);
    refuse(s, ST_ASLEEP);
}

/* Woken, it is loaded: until it listens no connection is made, and no job ends for that. */
static void a_load_that_takes_its_time_ends_no_job(void **state)
{
    struct sleeper *s = *state;

    assert_int_equal(submit(s, &s->j), ST_OK);
    expect(s, WIRE_HELLO);
    refuse(s, ST_ASLEEP);
    expect(s, WIRE_WAKE);
    hang_up(s);
    for (int i = 0; i < 10; i++) {
        poll_loop_skip(s->r.loop, RIG_LOAD_WAIT_MS / 20);
        poll_loop_turn(s->r.loop, 0);
        if (hand_engine_has_come(&s->h))
            hang_up(s);
    }
    assert_int_equal(s->j.n_ends, 0);
    assert_true(engine_link_is_ready(s->r.link));
}

static void cancelled_it_ends_in_the_next_turn_and_is_never_sent(void **state)
{
    struct sleeper *s = *state;
    uint8_t byte;

    assert_int_equal(submit(s, &s->j), ST_OK);
    engine_cancel(s->j.job);
    assert_int_equal(s->j.n_ends, 0);
    engine_rig_await(&s->r, has_ended, &s->j);
    assert_int_equal(s->j.end.status, ST_CANCELLED);
    assert_int_equal(s->j.end.usage.prompt_tokens + s->j.end.usage.output_tokens, 0);
    expect(s, WIRE_HELLO);
    welcome(s);
    poll_loop_skip(s->r.loop, 100);
    poll_loop_turn(s->r.loop, 0);
    assert_int_equal(recv(s->h.fd, &byte, 1, MSG_DONTWAIT), -1);
}

static void who_waits_behind_a_cancelled_one_waits_on(void **state)
{
    struct sleeper *s = *state;
    struct rig_job first = {0};

    assert_int_equal(submit(s, &first), ST_OK);
    assert_int_equal(submit(s, &s->j), ST_OK);
    engine_cancel(first.job);
    engine_rig_await(&s->r, has_ended, &first);
    assert_int_equal(s->j.n_ends, 0);
    poll_loop_skip(s->r.loop, RIG_LOAD_WAIT_MS);
    engine_rig_await(&s->r, has_ended, &s->j);
    assert_int_equal(s->j.end.status, ST_ASLEEP);
    rig_job_dispose(&first);
}

static void after_its_longest_wait_it_ends_and_the_next_is_refused(void **state)
{
    struct sleeper *s = *state;
    struct rig_job next = {0};

    assert_int_equal(submit(s, &s->j), ST_OK);
    expect(s, WIRE_HELLO);
    refuse(s, ST_ASLEEP);
    expect(s, WIRE_WAKE);
    hang_up(s);
    close(s->h.listen_fd);
    s->h.listen_fd = -1;
    poll_loop_skip(s->r.loop, RIG_LOAD_WAIT_MS);
    engine_rig_await(&s->r, has_ended, &s->j);
    assert_int_equal(s->j.end.status, ST_ASLEEP);
    assert_false(engine_link_is_ready(s->r.link));
    assert_false(is_asleep(s));
    assert_int_equal(submit(s, &next), ST_UNAVAILABLE);
}

static bool is_away(void *arg)
{
    return !is_asleep(arg);
}

/* Its supervisor has gone: nobody would wake it, so it doesn't count as there. */
static void without_anybody_at_its_socket_it_sleeps_no_longer_than_a_load_takes(void **state)
{
    struct sleeper *s = *state;

    close(s->h.listen_fd);
    s->h.listen_fd = -1;
    poll_loop_skip(s->r.loop, RIG_LOAD_WAIT_MS / 2);
    assert_true(is_asleep(s) && engine_link_is_ready(s->r.link));
    poll_loop_skip(s->r.loop, RIG_LOAD_WAIT_MS / 2);
    engine_rig_await(&s->r, is_away, s);
    assert_false(engine_link_is_ready(s->r.link));
    assert_int_equal(submit(s, &s->j), ST_UNAVAILABLE);
}

static void a_start_that_fails_ends_it(void **state)
{
    struct sleeper *s = *state;
    struct rig_job next = {0};

    assert_int_equal(submit(s, &s->j), ST_OK);
    expect(s, WIRE_HELLO);
    refuse(s, ST_UNAVAILABLE);
    assert_int_equal(s->j.n_ends, 1);
    assert_int_equal(s->j.end.status, ST_UNAVAILABLE);
    assert_false(engine_link_is_ready(s->r.link));
    assert_false(is_asleep(s));
    assert_int_equal(submit(s, &next), ST_UNAVAILABLE);
}

static void more_than_may_wait_in_all_or_of_one_tenant_are_refused(void **state)
{
    struct sleeper *s = *state;
    struct rig_job *jobs = calloc(HELD_MAX, sizeof *jobs);

    for (size_t i = 0; i < HELD_MAX; i++) {
        if (i == HELD_MAX / 2) /* as many as one tenant may have */
            assert_int_equal(submit_of(s, 0, &s->j), ST_OVERLOADED);
        assert_int_equal(submit_of(s, i / (HELD_MAX / 2), &jobs[i]), ST_OK);
    }
    assert_int_equal(submit_of(s, 2, &s->j), ST_OVERLOADED);
    poll_loop_skip(s->r.loop, RIG_LOAD_WAIT_MS);
    engine_rig_await(&s->r, has_ended, &jobs[HELD_MAX - 1]);
    for (size_t i = 0; i < HELD_MAX; i++) {
        assert_int_equal(jobs[i].n_ends, 1);
        assert_int_equal(jobs[i].end.status, ST_ASLEEP);
        rig_job_dispose(&jobs[i]);
    }
    assert_int_equal(s->j.n_ends, 0);
    free(jobs);
}

static void the_links_end_is_theirs(void **state)
{
    struct sleeper *s = *state;

    assert_int_equal(submit(s, &s->j), ST_OK);
    engine_link_close(s->r.link);
    assert_int_equal(s->j.n_ends, 1);
    assert_int_equal(s->j.end.status, ST_UNAVAILABLE);
    assert_int_equal(engine_link_open(s->r.engine, s->r.loop, &s->r.link), ST_OK);
}

/* ---- sent to sleep ---- */

static bool is_connected(void *arg)
{
    struct sleeper *s = arg;
    struct engine_stats st;

    engine_stats(s->r.engine, &st);
    return st.connected;
}

static void connect_it(struct sleeper *s)
{
    poll_loop_skip(s->r.loop, 2000);
    expect(s, WIRE_HELLO);
    welcome(s);
    engine_rig_await(&s->r, is_connected, s);
}

static void send_to_sleep(struct sleeper *s)
{
    struct buf b;

    buf_init(&b);
    wire_put_bare(&b, WIRE_SLEEP);
    say(s, &b);
}

static void without_a_job_it_lets_the_engine_go(void **state)
{
    struct sleeper *s = *state;

    connect_it(s);
    send_to_sleep(s);
    hand_engine_await_left(&s->h);
    hang_up(s);
    assert_true(is_asleep(s) && engine_link_is_ready(s->r.link));
    poll_loop_turn(s->r.loop, 0);
    assert_false(hand_engine_has_come(&s->h)); /* not at once: the engine would stay */
    assert_int_equal(submit(s, &s->j), ST_OK);
    expect(s, WIRE_HELLO);
}

static void a_job_on_its_way_keeps_it(void **state)
{
    struct sleeper *s = *state;
    uint64_t job = 0;

    connect_it(s);
    assert_int_equal(submit(s, &s->j), ST_OK);
    send_to_sleep(s);
    assert_int_equal(next_frame(s, &job), WIRE_SUBMIT);
    say_end(s, job);
    engine_rig_await(&s->r, has_ended, &s->j);
    assert_int_equal(s->j.end.status, ST_OK);
    assert_true(is_connected(s) && !is_asleep(s));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_job_wakes_it_waits_and_is_sent_once_it_greets),
        TEST(nobody_is_woken_without_a_job),
        TEST(a_load_that_takes_its_time_ends_no_job),
        TEST(cancelled_it_ends_in_the_next_turn_and_is_never_sent),
        TEST(who_waits_behind_a_cancelled_one_waits_on),
        TEST(after_its_longest_wait_it_ends_and_the_next_is_refused),
        TEST(without_anybody_at_its_socket_it_sleeps_no_longer_than_a_load_takes),
        TEST(a_start_that_fails_ends_it),
        TEST(more_than_may_wait_in_all_or_of_one_tenant_are_refused),
        TEST(the_links_end_is_theirs),
        TEST(without_a_job_it_lets_the_engine_go),
        TEST(a_job_on_its_way_keeps_it),
    };

    log_init("test", LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
