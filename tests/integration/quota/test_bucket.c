/* Properties of the token bucket on a clock that the test turns: the scripts run in a real Redis
 * with only their question for the time replaced. */
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
#include "quota/keys.h"
#include "quota/script.h"
#include "tests/lib/poll_loop.h"
#include "tests/lib/redis_server.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define UNIT INT64_C(60000000)
/* Some day in 2026, as Redis would tell it. */
#define START_US INT64_C(1790000000000000)

static struct redis_server server;
static struct loop *loop;
static struct redis *redis;
static struct quota_script admit;
static struct redis_script faked;
static struct buf faked_source;
static int64_t now_us;
static uint64_t seed;

struct answer {
    bool is_there;
    int64_t code, wait_us, remaining, reset_us;
};

static uint64_t random_number(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static void on_answer(void *arg, const struct redis_answer *a)
{
    struct answer *out = arg;

    assert_int_equal(a->status, ST_OK);
    assert_int_equal(a->n_values, 9);
    *out = (struct answer){.is_there = true,
                           .code = a->values[0].integer,
                           .wait_us = a->values[2].integer,
                           .remaining = a->values[7].integer,
                           .reset_us = a->values[8].integer};
}

static bool is_there(void *arg)
{
    return ((struct answer *)arg)->is_there;
}

/* The clock is one more argument, which the replaced question reads. */
static struct answer take(int64_t key_id, int64_t limit, int64_t tokens)
{
    const struct quota_ask ask = {.request = id_new(clock_wall_ms()),
                                  .tenant_id = 1,
                                  .project_id = 1,
                                  .key_id = key_id,
                                  .key = {.tokens_per_min = limit}};
    struct quota_words w;
    struct answer a = {0};

    quota_words_init(&w, &ask);
    quota_words_add_id(&w, &ask.request);
    quota_words_add_int(&w, tokens);
    quota_words_add_int(&w, 60000);
    quota_words_add_int(&w, 60000);
    quota_words_add_limits(&w, &ask);
    quota_words_add_int(&w, now_us / 1000000);
    quota_words_add_int(&w, now_us % 1000000);
    redis_eval(redis, &faked, w.keys, QUOTA_KEYS, w.args, w.n_args, on_answer, &a);
    assert_true(poll_loop_run_until(loop, is_there, &a, 5000));
    return a;
}

struct grant {
    int64_t at_us, tokens;
};

static void check_every_interval(const struct grant *g, size_t n, int64_t limit)
{
    for (size_t i = 0; i < n; i++) {
        __int128 sum = 0;

        for (size_t k = i; k < n; k++) {
            sum += g[k].tokens;
            assert_true(sum * UNIT <=
                        (__int128)limit * UNIT + (__int128)limit * (g[k].at_us - g[i].at_us));
        }
    }
}

static void run_property(int64_t key_id, int64_t limit)
{
    struct grant grants[1000];
    size_t n = 0;

    now_us = START_US;
    for (int i = 0; i < 1000; i++) {
        int64_t tokens = (int64_t)(random_number() % (uint64_t)limit) / (i % 3 == 0 ? 1 : 20) + 1;
        struct answer a = take(key_id, limit, tokens);

        if (a.code == 0)
            grants[n++] = (struct grant){now_us, tokens};
        now_us += (int64_t)(random_number() % (i % 50 == 0 ? 90000000 : 3000000));
    }
    assert_true(n > 50);
    check_every_interval(grants, n, limit);
}

static void test_any_interval_holds_capacity_plus_rate_times_time(void **state)
{
    static const int64_t limits[] = {7, 600, 99991, QUOTA_LIMIT_MAX};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(limits); i++)
        run_property((int64_t)i + 1, limits[i]);
}

static void test_retry_after_is_exact_to_the_microsecond(void **state)
{
    static const int64_t limits[] = {7, 600, 99991, QUOTA_LIMIT_MAX};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(limits); i++) {
        int64_t key_id = 100 + (int64_t)i, cost = limits[i] / 7;
        struct answer a;

        now_us = START_US + 13;
        assert_int_equal(take(key_id, limits[i], limits[i]).code, 0);
        now_us += 5;
        a = take(key_id, limits[i], cost);
        assert_int_equal(a.code, 1);
        now_us += a.wait_us - 1;
        assert_int_equal(take(key_id, limits[i], cost).code, 1);
        now_us += 1;
        assert_int_equal(take(key_id, limits[i], cost).code, 0);
    }
}

static void test_it_is_full_after_reset(void **state)
{
    struct answer a;

    (void)state;
    now_us = START_US;
    a = take(200, 600, 600);
    assert_int_equal(a.reset_us, 60000000);
    now_us += a.reset_us;
    a = take(200, 600, 600);
    assert_int_equal(a.code, 0);
    assert_int_equal(a.remaining, 0);
}

static void test_a_clock_that_goes_back_brings_nothing(void **state)
{
    (void)state;
    now_us = START_US + 3600000000;
    assert_int_equal(take(300, 600, 600).code, 0);
    now_us -= 3600000000;
    assert_int_equal(take(300, 600, 1).code, 1);
}

/* An empty bucket only refuses; it must fill from the new time on, as the refusal says. */
static void test_a_clock_that_goes_back_delays_no_refill(void **state)
{
    struct answer a;

    (void)state;
    now_us = START_US;
    assert_int_equal(take(42, 600, 600).code, 0);
    now_us -= INT64_C(3600) * 1000000;
    a = take(42, 600, 300);
    assert_int_equal(a.code, 1);
    assert_int_equal(a.wait_us, 30 * 1000000);
    now_us += a.wait_us;
    assert_int_equal(take(42, 600, 300).code, 0);
}

static void test_a_lowered_limit_holds_at_once(void **state)
{
    (void)state;
    now_us = START_US;
    assert_int_equal(take(400, 1000, 1).code, 0);
    assert_int_equal(take(400, 10, 11).code, 2);
    assert_int_equal(take(400, 10, 10).code, 0);
    assert_int_equal(take(400, 10, 1).code, 1);
}

/* bucket.lua asks once: redis.call('TIME') */
static void fake_the_clock(void)
{
    static const char question[] = "redis.call('TIME')", fake[] = "{ARGV[14], ARGV[15]}";
    const char *source = buf_cstr(&admit.source);
    const char *at = strstr(source, question);

    assert_non_null(at);
    assert_null(strstr(at + 1, question));
    buf_init(&faked_source);
    buf_append(&faked_source, source, (size_t)(at - source));
    buf_puts(&faked_source, fake);
    buf_puts(&faked_source, at + sizeof question - 1);
    redis_script_init(&faked, "admit with a fake clock", faked_source.data, faked_source.len);
}

static bool is_connected(void *arg)
{
    (void)arg;
    return redis_is_connected(redis);
}

static int setup(void **state)
{
    const struct redis_config cfg = {.socket_path = server.socket_path,
                                     .connect_timeout_ms = 5000,
                                     .command_timeout_ms = 5000,
                                     .in_flight_max = 16};

    (void)state;
    seed = UINT64_C(88172645463325252);
    loop = poll_loop_new();
    assert_int_equal(quota_script_init(&admit, "quota/admit.lua"), ST_OK);
    fake_the_clock();
    assert_int_equal(redis_open(loop, &cfg, &redis), ST_OK);
    assert_true(poll_loop_run_until(loop, is_connected, NULL, 5000));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    redis_close(redis);
    poll_loop_free(loop);
    quota_script_dispose(&admit);
    buf_dispose(&faked_source);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_interval_holds_capacity_plus_rate_times_time),
        cmocka_unit_test(test_retry_after_is_exact_to_the_microsecond),
        cmocka_unit_test(test_it_is_full_after_reset),
        cmocka_unit_test(test_a_clock_that_goes_back_brings_nothing),
        cmocka_unit_test(test_a_clock_that_goes_back_delays_no_refill),
        cmocka_unit_test(test_a_lowered_limit_holds_at_once),
    };
    int failed;

    signal(SIGPIPE, SIG_IGN);
    if (!redis_server_start(&server))
        return 0;
    failed = cmocka_run_group_tests(tests, setup, teardown);
    redis_server_stop(&server);
    return failed;
}
