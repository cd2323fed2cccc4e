#include "engine/backend/backend.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/core/listener.h"
#include "engine/cpu/cpu.h"
#include "engine/wire/wire.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/fake_device.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/hand_engine.h"
#include "tests/lib/poll_loop.h"

static const int32_t prompt[] = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100};

static struct engine_submit request(uint32_t max_tokens)
{
    return (struct engine_submit){.prompt = prompt,
                                  .n_prompt = COUNT_OF(prompt),
                                  .max_tokens = max_tokens,
                                  .tenant = 1,
                                  .sampling.seed = 7,
                                  .ignore_eos = true};
}

static void rig_up(struct engine_rig *r)
{
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(r, &fake_device_ops);
    engine_rig_start(r);
    engine_rig_await_ready(r);
}

static void test_a_job_gives_text_and_exact_counts(void **state)
{
    struct engine_submit s = request(12);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OK);
    assert_int_equal(j.end.finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j.end.usage.prompt_tokens, COUNT_OF(prompt));
    assert_int_equal(j.end.usage.output_tokens, 12);
    assert_int_equal(j.n_frames, 12);
    assert_int_equal(j.usage.output_tokens, 12);
    assert_true(j.choices[0].text.len > 0);
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_nothing_comes_past_a_stop_string(void **state)
{
    struct engine_submit s = request(40);
    struct rig_job all = {0}, cut = {0};
    struct engine_stop_string stop;
    struct engine_rig r;
    char *at;

    (void)state;
    rig_up(&r);
    assert_int_equal(rig_job_submit(&r, &all, &s), ST_OK);
    rig_job_await(&r, &all);
    stop = (struct engine_stop_string){all.choices[0].text.data + all.choices[0].text.len / 2, 2};
    while (stop.len < 8 && ((unsigned char)stop.text[0] & 0xC0) == 0x80)
        stop.text++;
    at = memmem(all.choices[0].text.data, all.choices[0].text.len, stop.text, stop.len);
    assert_non_null(at);
    s.stops = &stop;
    s.n_stops = 1;
    assert_int_equal(rig_job_submit(&r, &cut, &s), ST_OK);
    rig_job_await(&r, &cut);
    assert_int_equal(cut.end.finish, ENGINE_FINISH_STOP);
    assert_int_equal(cut.choices[0].text.len, at - all.choices[0].text.data);
    assert_memory_equal(cut.choices[0].text.data, all.choices[0].text.data,
                        cut.choices[0].text.len);
    assert_true(cut.end.usage.output_tokens < 40);
    rig_job_dispose(&all);
    rig_job_dispose(&cut);
    engine_rig_close(&r);
}

/* Twice the same request: the second time its last character might begin a stop string, which then
 * doesn't come. */
static void check_held_back(struct engine_rig *r, struct engine_submit *s,
                            enum engine_finish finish)
{
    struct rig_job plain = {0}, held = {0};
    char stop_text[8];
    struct engine_stop_string stop = {stop_text, 1};
    const char *last;

    assert_int_equal(rig_job_submit(r, &plain, s), ST_OK);
    rig_job_await(r, &plain);
    assert_int_equal(plain.end.finish, finish);
    assert_true(plain.choices[0].text.len > 0);
    last = plain.choices[0].text.data + plain.choices[0].text.len - 1;
    while (((unsigned char)*last & 0xC0) == 0x80)
        last--;
    stop.len = (size_t)(plain.choices[0].text.data + plain.choices[0].text.len - last);
    memcpy(stop_text, last, stop.len);
    memcpy(stop_text + stop.len, "\1\1", 2);
    stop.len += 2;
    s->stops = &stop;
    s->n_stops = 1;
    assert_int_equal(rig_job_submit(r, &held, s), ST_OK);
    rig_job_await(r, &held);
    assert_int_equal(held.end.finish, finish);
    assert_int_equal(held.choices[0].text.len, plain.choices[0].text.len);
    assert_memory_equal(held.choices[0].text.data, plain.choices[0].text.data,
                        plain.choices[0].text.len);
    rig_job_dispose(&plain);
    rig_job_dispose(&held);
}

static void test_what_a_stop_string_held_back_comes_out_at_the_length(void **state)
{
    struct engine_submit s = request(12);
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    check_held_back(&r, &s, ENGINE_FINISH_LENGTH);
    engine_rig_close(&r);
}

/* A seed with which the fake device picks EOS after some tokens of text. */
static uint64_t seed_with_an_end(uint32_t max_tokens)
{
    for (uint64_t seed = 1;; seed++) {
        int32_t tokens[COUNT_OF(prompt) + 64];
        uint32_t n = COUNT_OF(prompt);

        memcpy(tokens, prompt, sizeof prompt);
        for (uint32_t i = 0; i < max_tokens; i++) {
            tokens[n] = fake_device_pick(tokens, n, seed, i, TINY_VOCAB);
            if (tokens[n] == TINY_IM_END && i > 3)
                return seed;
            if (tokens[n] < TINY_BYTE0)
                break;
            n++;
        }
    }
}

static void test_what_a_stop_string_held_back_comes_out_at_the_models_own_end(void **state)
{
    struct engine_submit s = request(40);
    struct engine_rig r;

    (void)state;
    s.ignore_eos = false;
    s.sampling.seed = seed_with_an_end(s.max_tokens);
    rig_up(&r);
    check_held_back(&r, &s, ENGINE_FINISH_STOP);
    engine_rig_close(&r);
}

/* So little credit that a job can't be done before the loop turns. */
static void rig_up_slow(struct engine_rig *r, uint32_t max_sequences)
{
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(r, &fake_device_ops);
    r->cfg.credit_bytes = 200; /* four frames */
    r->cfg.max_sequences = max_sequences;
    engine_rig_start(r);
    engine_rig_await_ready(r);
}

static void test_a_cancelled_job_ends_with_its_counts_and_frees_its_pages(void **state)
{
    struct engine_submit s = request(400);
    struct rig_job j = {.cancel_after = 3};
    struct engine_rig r;

    (void)state;
    rig_up_slow(&r, 4);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.n_frames, 3);
    assert_int_equal(j.end.status, ST_CANCELLED);
    assert_int_equal(j.end.finish, ENGINE_FINISH_NONE);
    assert_true(j.end.usage.output_tokens >= 3);
    assert_int_equal(j.end.usage.prompt_tokens, COUNT_OF(prompt));
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_a_closed_connection_cancels_its_jobs(void **state)
{
    struct engine_submit s = request(400);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up_slow(&r, 4);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    while (j.n_frames == 0)
        poll_loop_turn(r.loop, 1000);
    assert_int_equal(j.n_ends, 0);
    engine_link_close(r.link);
    assert_int_equal(j.n_ends, 1);
    assert_int_equal(j.end.status, ST_UNAVAILABLE);
    assert_int_equal(j.end.usage.output_tokens, j.n_frames);
    assert_int_equal(engine_link_open(r.engine, r.loop, &r.link), ST_OK);
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_sampling_that_the_engine_would_refuse_fails_its_job_alone(void **state)
{
    const struct {
        float temperature, top_p;
        int32_t top_k;
    } bad[] = {{0, -1, 0}, {0, 1.5F, 0}, {0, NAN, 0}, {-1, 1, 0}, {NAN, 1, 0}, {1, 1, -1}};
    struct engine_submit good = request(400);
    struct rig_job j = {0}, refused = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    assert_int_equal(rig_job_submit(&r, &j, &good), ST_OK);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct engine_submit s = request(4);

        s.sampling.temperature = bad[i].temperature;
        s.sampling.top_p = bad[i].top_p;
        s.sampling.top_k = bad[i].top_k;
        assert_int_equal(rig_job_submit(&r, &refused, &s), ST_INVALID);
    }
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OK);
    assert_int_equal(j.end.usage.output_tokens, 400);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_max_tokens_0_computes_the_prompt_only(void **state)
{
    struct engine_submit s = request(0);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j.end.usage.prompt_tokens, COUNT_OF(prompt));
    assert_int_equal(j.end.usage.output_tokens, 0);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_nan_fails_its_job_alone_and_costs_nothing(void **state)
{
    struct engine_submit bad = request(50), good = request(50);
    struct rig_job j[2] = {{0}, {0}};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    fake_device_script.nan_seed = bad.sampling.seed = 99;
    fake_device_script.nan_after = 3;
    assert_int_equal(rig_job_submit(&r, &j[0], &bad), ST_OK);
    assert_int_equal(rig_job_submit(&r, &j[1], &good), ST_OK);
    rig_job_await(&r, &j[0]);
    rig_job_await(&r, &j[1]);
    assert_int_equal(j[0].end.status, ST_INTERNAL);
    assert_int_equal(j[0].end.usage.prompt_tokens + j[0].end.usage.output_tokens, 0);
    assert_int_equal(j[1].end.status, ST_OK);
    assert_int_equal(j[1].end.usage.output_tokens, 50);
    rig_job_dispose(&j[0]);
    rig_job_dispose(&j[1]);
    engine_rig_close(&r);
}

static void test_little_credit_slows_a_job_and_loses_nothing(void **state)
{
    struct engine_submit s = request(300);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up_slow(&r, 4);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.usage.output_tokens, 300);
    assert_int_equal(j.n_frames, 300);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_a_full_queue_ends_a_job_as_overloaded(void **state)
{
    struct engine_submit s = request(400);
    struct rig_job j[4] = {{0}};
    struct engine_rig r;
    int n_refused = 0;

    (void)state;
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    r.cfg.credit_bytes = 200;
    r.cfg.max_sequences = r.cfg.queue_max = 1;
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    for (int i = 0; i < 4; i++)
        assert_int_equal(rig_job_submit(&r, &j[i], &s), ST_OK);
    for (int i = 0; i < 4; i++) {
        rig_job_await(&r, &j[i]);
        n_refused += j[i].end.status == ST_OVERLOADED;
        rig_job_dispose(&j[i]);
    }
    assert_in_range(n_refused, 2, 3);
    engine_rig_close(&r);
}

static void test_a_prompt_that_fills_the_context_is_too_long(void **state)
{
    static int32_t ids[512];
    struct engine_submit s = request(1);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    s.prompt = ids;
    s.n_prompt = COUNT_OF(ids);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_TOO_LONG);
    assert_int_equal(j.end.usage.prompt_tokens, 0);
    engine_rig_close(&r);
}

/* ---- a gateway or an engine played by hand ---- */

static struct sockaddr_un address(const struct engine_rig *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    strcpy(a.sun_path, r->socket_path);
    return a;
}

static void put_hand_submit(struct buf *b, uint64_t job, uint32_t max_tokens)
{
    wire_put_submit(b, &(struct wire_submit){.job = job,
                                             .weight = 1000,
                                             .max_tokens = max_tokens,
                                             .n_choices = 1,
                                             .sampling = {.top_p = 1.0f},
                                             .ignore_eos = true,
                                             .n_prompt = COUNT_OF(prompt),
                                             .prompt = prompt});
}

static int stopped_gateway(const struct engine_rig *r)
{
    struct sockaddr_un a = address(r);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct buf b;

    buf_init(&b);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    wire_put_hello(&b, &(struct wire_hello){WIRE_VERSION_MIN, WIRE_VERSION_MAX, "hand"});
    for (uint64_t job = 1; job <= 4; job++)
        put_hand_submit(&b, job, 400);
    hand_engine_send(fd, &b);
    buf_clear(&b);
    buf_dispose(&b);
    return fd;
}

static bool has_steps(void *arg)
{
    struct engine_stats st;

    engine_stats(arg, &st);
    return st.steps >= 4;
}

static void test_a_stopped_gateway_blocks_nobody(void **state)
{
    struct engine_submit s = request(100);
    struct rig_job j = {0};
    struct engine_rig r;
    int stopped;

    (void)state;
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    r.cfg.credit_bytes = 400;
    r.cfg.max_sequences = 2; /* both slots are the stopped one's at first */
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    stopped = stopped_gateway(&r);
    engine_rig_await(&r, has_steps, r.engine);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OK);
    assert_int_equal(j.end.usage.output_tokens, 100);
    close(stopped);
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_a_broken_frame_ends_that_connection_alone(void **state)
{
    struct engine_submit s = request(50);
    struct rig_job j = {0};
    struct engine_rig r;
    char byte[256];
    int fd;

    (void)state;
    rig_up(&r);
    fd = stopped_gateway(&r);
    assert_int_equal(send(fd, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL), 4);
    while (recv(fd, byte, sizeof byte, 0) > 0)
        continue;
    close(fd);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OK);
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_when_the_engine_dies_the_last_frame_counts(void **state)
{
    struct engine_submit s = request(50);
    struct rig_job j = {0}, late = {0};
    struct hand_engine h;
    struct engine_rig r;
    struct buf b;

    (void)state;
    hand_engine_open(&h, &r, NULL, 0);
    engine_rig_await_ready(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    buf_init(&b);
    wire_step_begin(&b, 1);
    wire_step_add(&b, &(struct wire_step_entry){.job = (uint64_t)1 << 32 | 0,
                                                .prompt_tokens = 10,
                                                .output_tokens = 3,
                                                .text = "abc",
                                                .text_len = 3});
    wire_step_end(&b);
    hand_engine_send(h.fd, &b);
    close(h.fd);
    h.fd = -1;
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_UNAVAILABLE);
    assert_int_equal(j.end.usage.output_tokens, 3);
    assert_int_equal(j.end.usage.prompt_tokens, 10);
    assert_string_equal(buf_cstr(&j.choices[0].text), "abc");
    assert_int_equal(rig_job_submit(&r, &late, &s), ST_UNAVAILABLE);
    buf_dispose(&b);
    rig_job_dispose(&j);
    hand_engine_close(&h);
}

static void test_another_model_revision_is_never_ready(void **state)
{
    struct hand_engine h;
    struct engine_rig r;

    (void)state;
    hand_engine_open(&h, &r, "0000", 0);
    hand_engine_await_left(&h);
    assert_false(engine_link_is_ready(r.link));
    hand_engine_close(&h);
}

static void test_the_link_finds_an_engine_that_comes_back(void **state)
{
    struct engine_submit s = request(5);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    engine_rig_stop(&r);
    engine_rig_start(&r);
    poll_loop_turn(r.loop, 1000); /* sees that the old one has closed */
    engine_rig_await_ready(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OK);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_a_stop_lets_running_jobs_finish_and_refuses_waiting_ones(void **state)
{
    struct engine_submit s = request(60);
    struct rig_job running = {0}, waiting = {0};
    struct engine_rig r;

    (void)state;
    rig_up_slow(&r, 1);
    assert_int_equal(rig_job_submit(&r, &running, &s), ST_OK);
    assert_int_equal(rig_job_submit(&r, &waiting, &s), ST_OK);
    while (running.n_frames == 0)
        poll_loop_turn(r.loop, 1000);
    engine_rig_tell_stop(&r);
    rig_job_await(&r, &running);
    assert_int_equal(running.end.status, ST_OK);
    assert_int_equal(running.end.usage.output_tokens, 60);
    assert_int_equal(waiting.n_ends, 1);
    assert_int_equal(waiting.end.status, ST_UNAVAILABLE);
    assert_int_equal(waiting.end.usage.prompt_tokens, 0);
    engine_rig_join(&r);
    rig_job_dispose(&running);
    rig_job_dispose(&waiting);
    engine_rig_close(&r);
}

static void test_a_socket_left_behind_is_replaced_one_in_use_is_not(void **state)
{
    struct engine_rig r;
    struct stat st;
    int fd, second;

    (void)state;
    engine_rig_open(&r, &fake_device_ops);
    assert_int_equal(listener_open(r.socket_path, &fd, NULL), ST_OK);
    assert_int_equal(listener_start(r.socket_path, fd, NULL), ST_OK);
    assert_int_equal(stat(r.socket_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(listener_open(r.socket_path, &second, NULL), ST_CONFLICT);
    assert_int_equal(listener_open(r.model_path, &second, NULL), ST_CONFLICT);
    assert_int_equal(access(r.model_path, F_OK), 0); /* no socket: not ours to replace */
    close(fd);                                       /* as a killed process leaves it */
    assert_int_equal(listener_open(r.socket_path, &second, NULL), ST_OK);
    /* Two that start at one time: the path is the first one's. */
    assert_int_equal(listener_open(r.socket_path, &fd, NULL), ST_OK);
    assert_int_equal(listener_start(r.socket_path, second, NULL), ST_OK);
    assert_int_equal(listener_start(r.socket_path, fd, NULL), ST_CONFLICT);
    close(fd);
    close(second);
    engine_rig_close(&r);
}

/* ---- the real thing, small ---- */

#define N_JOBS 64

static void submit_nth(struct engine_rig *r, struct rig_job *j, uint32_t i)
{
    int32_t ids[40];
    struct engine_submit s = {.prompt = ids,
                              .n_prompt = 3 + i % 37,
                              .max_tokens = 16 + i % 9,
                              .tenant = i % 5,
                              .sampling.seed = i,
                              .sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f,
                              .ignore_eos = true};

    for (uint32_t k = 0; k < s.n_prompt; k++)
        ids[k] = (int32_t)((i * 31 + k * 17) % 250 + 5);
    assert_int_equal(rig_job_submit(r, j, &s), ST_OK);
}

static void check_same(const struct rig_job *a, const struct rig_job *b)
{
    assert_int_equal(a->end.status, ST_OK);
    assert_int_equal(a->end.usage.output_tokens, b->end.usage.output_tokens);
    assert_int_equal(a->choices[0].text.len, b->choices[0].text.len);
    assert_memory_equal(a->choices[0].text.data, b->choices[0].text.data, a->choices[0].text.len);
}

/* Each alone, then all together; *st: of the engine afterwards. */
static void sixty_four(enum device_mode mode, size_t kv_bytes, struct engine_stats *st)
{
    static struct rig_job alone[N_JOBS], together[N_JOBS];
    struct engine_rig r;

    memset(alone, 0, sizeof alone);
    memset(together, 0, sizeof together);
    engine_rig_open(&r, &cpu_device_ops);
    r.cfg.mode = mode;
    r.cfg.kv_bytes = kv_bytes;
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        submit_nth(&r, &alone[i], i);
        rig_job_await(&r, &alone[i]);
    }
    for (uint32_t i = 0; i < N_JOBS; i++)
        submit_nth(&r, &together[i], i);
    for (uint32_t i = 0; i < N_JOBS; i++)
        rig_job_await(&r, &together[i]);
    for (uint32_t i = 0; i < N_JOBS; i++) {
        check_same(&together[i], &alone[i]);
        rig_job_dispose(&alone[i]);
        rig_job_dispose(&together[i]);
    }
    engine_rig_await_idle(&r);
    engine_stats(r.engine, st);
    engine_rig_close(&r);
}

static void test_64_jobs_at_once_give_what_each_gives_alone(void **state)
{
    struct engine_stats st;

    (void)state;
    sixty_four(DEVICE_EXACT, (size_t)8 << 20, &st);
    assert_in_range(st.rows_max, N_JOBS / 2, N_JOBS);
    sixty_four(DEVICE_FAST, (size_t)8 << 20, &st);
    assert_in_range(st.rows_max, N_JOBS / 2, N_JOBS);
}

static void test_64_jobs_on_the_pages_of_one_context_are_preempted_and_the_same(void **state)
{
    struct engine_stats st;

    (void)state;
    sixty_four(DEVICE_EXACT, (size_t)256 << 10, &st);
    assert_true(st.preemptions > 0);
}

static void test_without_a_gateway_the_engine_ends_by_itself(void **state)
{
    struct engine_rig r;

    (void)state;
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    r.cfg.orphan_ms = 20;
    engine_rig_start(&r);
    /* The gateway's loop doesn't turn: nobody comes. */
    engine_rig_join(&r);
    assert_int_equal(access(r.socket_path, F_OK), -1);
    engine_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_gives_text_and_exact_counts),
        cmocka_unit_test(test_nothing_comes_past_a_stop_string),
        cmocka_unit_test(test_what_a_stop_string_held_back_comes_out_at_the_length),
        cmocka_unit_test(test_what_a_stop_string_held_back_comes_out_at_the_models_own_end),
        cmocka_unit_test(test_a_cancelled_job_ends_with_its_counts_and_frees_its_pages),
        cmocka_unit_test(test_a_closed_connection_cancels_its_jobs),
        cmocka_unit_test(test_sampling_that_the_engine_would_refuse_fails_its_job_alone),
        cmocka_unit_test(test_max_tokens_0_computes_the_prompt_only),
        cmocka_unit_test(test_nan_fails_its_job_alone_and_costs_nothing),
        cmocka_unit_test(test_little_credit_slows_a_job_and_loses_nothing),
        cmocka_unit_test(test_a_full_queue_ends_a_job_as_overloaded),
        cmocka_unit_test(test_a_prompt_that_fills_the_context_is_too_long),
        cmocka_unit_test(test_a_stopped_gateway_blocks_nobody),
        cmocka_unit_test(test_a_broken_frame_ends_that_connection_alone),
        cmocka_unit_test(test_when_the_engine_dies_the_last_frame_counts),
        cmocka_unit_test(test_another_model_revision_is_never_ready),
        cmocka_unit_test(test_the_link_finds_an_engine_that_comes_back),
        cmocka_unit_test(test_a_stop_lets_running_jobs_finish_and_refuses_waiting_ones),
        cmocka_unit_test(test_a_socket_left_behind_is_replaced_one_in_use_is_not),
        cmocka_unit_test(test_64_jobs_at_once_give_what_each_gives_alone),
        cmocka_unit_test(test_64_jobs_on_the_pages_of_one_context_are_preempted_and_the_same),
        cmocka_unit_test(test_without_a_gateway_the_engine_ends_by_itself),
    };

    log_init("test", LOG_ERROR + 1); /* broken connections are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
