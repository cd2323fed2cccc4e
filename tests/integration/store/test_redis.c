/* store/redis.c and redis_command.c against a real Redis: deadlines, freezing, crashes, scripts
 * that the server lacks. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "store/redis.h"
#include "tests/lib/poll_loop.h"
#include "tests/lib/redis_server.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define COMMAND_TIMEOUT_MS 200

static struct redis_server server;
static struct loop *loop;
static struct redis *redis;
static struct redis_script echo, incr, sleepy, wrong;

struct answer {
    int count;
    enum status status;
    int64_t integer;
    char text[32];
    size_t n_values;
};

static void on_answer(void *arg, const struct redis_answer *a)
{
    struct answer *out = arg;

    out->count++;
    out->status = a->status;
    out->n_values = a->n_values;
    for (size_t i = 0; i < a->n_values; i++) {
        if (a->values[i].is_integer)
            out->integer = a->values[i].integer;
        else
            snprintf(out->text, sizeof out->text, "%.*s", (int)a->values[i].len, a->values[i].text);
    }
}

static bool is_answered(void *arg)
{
    return ((struct answer *)arg)->count > 0;
}

static bool is_connected(void *arg)
{
    (void)arg;
    return redis_is_connected(redis);
}

static void ask(const struct redis_script *s, struct answer *out)
{
    static const struct redis_arg key = {"k", 1}, arg = {"hello", 5};

    memset(out, 0, sizeof *out);
    redis_eval(redis, s, &key, 1, &arg, 1, on_answer, out);
    assert_int_equal(out->count, 0); /* never from inside */
}

static enum status ask_and_wait(const struct redis_script *s, struct answer *out)
{
    ask(s, out);
    assert_true(poll_loop_run_until(loop, is_answered, out, 5000));
    assert_int_equal(out->count, 1);
    return out->status;
}

static void open_redis(size_t in_flight_max)
{
    const struct redis_config cfg = {.socket_path = server.socket_path,
                                     .connect_timeout_ms = 300,
                                     .command_timeout_ms = COMMAND_TIMEOUT_MS,
                                     .in_flight_max = in_flight_max};

    assert_int_equal(redis_open(loop, &cfg, &redis), ST_OK);
    assert_true(poll_loop_run_until(loop, is_connected, NULL, 5000));
}

static int setup(void **state)
{
    (void)state;
    loop = poll_loop_new();
    open_redis(64);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    redis_close(redis);
    poll_loop_free(loop);
    return 0;
}

static void test_a_script_runs_though_the_server_lacks_it(void **state)
{
    static const char *const flush[] = {"SCRIPT", "FLUSH"};
    struct answer a;

    (void)state;
    redis_server_ask(&server, flush, 2);
    assert_int_equal(ask_and_wait(&echo, &a), ST_OK);
    assert_int_equal(a.n_values, 2);
    assert_string_equal(a.text, "hello");
    assert_int_equal(a.integer, 1);
    assert_int_equal(ask_and_wait(&echo, &a), ST_OK);
}

static void test_a_failing_script_is_internal(void **state)
{
    struct answer a;

    (void)state;
    assert_int_equal(ask_and_wait(&wrong, &a), ST_INTERNAL);
    assert_int_equal(ask_and_wait(&echo, &a), ST_OK);
}

static void test_more_than_the_bound_is_refused(void **state)
{
    struct answer a[5];
    int ok = 0, refused = 0;

    (void)state;
    redis_close(redis);
    open_redis(3);
    for (size_t i = 0; i < COUNT_OF(a); i++)
        ask(&echo, &a[i]);
    for (size_t i = 0; i < COUNT_OF(a); i++) {
        assert_true(poll_loop_run_until(loop, is_answered, &a[i], 5000));
        ok += a[i].status == ST_OK;
        refused += a[i].status == ST_UNAVAILABLE;
    }
    assert_int_equal(ok, 3);
    assert_int_equal(refused, 2);
}

static void test_a_frozen_server_costs_the_deadline_and_recovers(void **state)
{
    struct answer a, b;
    int64_t start;

    (void)state;
    redis_server_freeze(&server);
    start = clock_mono_ms();
    ask(&echo, &a);
    assert_int_equal(ask_and_wait(&echo, &b), ST_TIMEOUT);
    assert_true(poll_loop_run_until(loop, is_answered, &a, 1000));
    assert_int_equal(a.status, ST_TIMEOUT);
    assert_in_range(clock_mono_ms() - start, COMMAND_TIMEOUT_MS - 20, COMMAND_TIMEOUT_MS + 300);
    /* meanwhile commands fail at once: the connection was accepted, but nobody said PONG */
    assert_false(redis_is_connected(redis));
    start = clock_mono_ms();
    assert_int_equal(ask_and_wait(&echo, &a), ST_UNAVAILABLE);
    assert_in_range(clock_mono_ms() - start, 0, 100);
    redis_server_thaw(&server);
    assert_true(poll_loop_run_until(loop, is_connected, NULL, 5000));
    assert_int_equal(ask_and_wait(&echo, &a), ST_OK);
    assert_int_equal(b.count, 1);
}

static void test_a_crash_ends_what_is_out_and_data_comes_back(void **state)
{
    struct answer a;

    (void)state;
    assert_int_equal(ask_and_wait(&incr, &a), ST_OK);
    redis_server_freeze(&server);
    ask(&echo, &a);
    redis_server_crash(&server);
    assert_true(poll_loop_run_until(loop, is_answered, &a, 5000));
    assert_int_equal(a.status, ST_UNAVAILABLE);
    redis_server_resume(&server);
    assert_true(poll_loop_run_until(loop, is_connected, NULL, 5000));
    assert_int_equal(ask_and_wait(&incr, &a), ST_OK);
    assert_int_equal(a.integer, 2); /* the append-only file had the first */
}

static void test_a_slow_script_is_a_timeout_for_all_behind_it(void **state)
{
    struct answer a, b;

    (void)state;
    ask(&sleepy, &a);
    ask(&echo, &b);
    assert_true(poll_loop_run_until(loop, is_answered, &b, 5000));
    assert_int_equal(a.status, ST_TIMEOUT);
    assert_int_equal(b.status, ST_TIMEOUT);
    assert_true(poll_loop_run_until(loop, is_connected, NULL, 10000));
}

static void test_answers_that_lie_in_the_socket_are_no_timeout(void **state)
{
    struct answer a;
    int64_t until;

    (void)state;
    ask(&echo, &a);
    poll_loop_turn(loop, 0); /* sends it */
    until = clock_mono_ms() + COMMAND_TIMEOUT_MS + 50;
    while (clock_mono_ms() < until) /* a loop that is busy with something else */
        ;
    assert_true(poll_loop_run_until(loop, is_answered, &a, 5000));
    assert_int_equal(a.status, ST_OK);
}

static void test_close_ends_what_is_out(void **state)
{
    struct answer a;

    (void)state;
    ask(&echo, &a);
    redis_close(redis);
    redis = NULL;
    assert_int_equal(a.count, 1);
    assert_int_equal(a.status, ST_UNAVAILABLE);
}

static void script(struct redis_script *s, const char *name, const char *source)
{
    redis_script_init(s, name, source, strlen(source));
}

int main(void)
{
#define REDIS_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        REDIS_TEST(test_a_script_runs_though_the_server_lacks_it),
        REDIS_TEST(test_a_failing_script_is_internal),
        REDIS_TEST(test_more_than_the_bound_is_refused),
        REDIS_TEST(test_a_frozen_server_costs_the_deadline_and_recovers),
        REDIS_TEST(test_a_crash_ends_what_is_out_and_data_comes_back),
        REDIS_TEST(test_a_slow_script_is_a_timeout_for_all_behind_it),
        REDIS_TEST(test_answers_that_lie_in_the_socket_are_no_timeout),
        REDIS_TEST(test_close_ends_what_is_out),
    };
    int failed;

    signal(SIGPIPE, SIG_IGN);
    script(&echo, "echo", "return {ARGV[1], 1}");
    script(&incr, "incr", "return redis.call('INCR', KEYS[1])");
    script(&sleepy, "sleepy",
           "local t = redis.call('TIME') local e = t[1] * 1000000 + t[2] + 800000 "
           "repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] > e return 1");
    script(&wrong, "wrong", "return redis.call('HGET', 'no')");
    if (!redis_server_start(&server))
        return 0;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
