/* quota.c and its scripts against a real Redis, on Redis's own clock. */
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
#include "quota/quota.h"
#include "tests/lib/poll_loop.h"
#include "tests/lib/redis_server.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static struct redis_server server;
static struct loop *loop;
static struct redis *redis;
static struct quota *quota;
static int64_t next_tenant = 1; /* every test has a tenant of its own */

struct got {
    int count;
    struct quota_grant grant;
};

static void on_grant(void *arg, const struct quota_grant *g)
{
    struct got *got = arg;

    got->count++;
    got->grant = *g;
}

static bool is_granted(void *arg)
{
    return ((struct got *)arg)->count > 0;
}

static bool is_settled(void *arg)
{
    (void)arg;
    return quota_unsettled(quota) == 0;
}

static bool is_connected(void *arg)
{
    (void)arg;
    return redis_is_connected(redis);
}

static struct quota_grant reserve(const struct quota_ask *ask)
{
    struct got got = {0};

    quota_reserve(quota, ask, on_grant, &got);
    assert_int_equal(got.count, 0);
    assert_true(poll_loop_run_until(loop, is_granted, &got, 5000));
    assert_int_equal(got.count, 1);
    return got.grant;
}

static void settle(const struct quota_ask *ask, int64_t used)
{
    quota_settle(quota, ask, used);
    assert_true(poll_loop_run_until(loop, is_settled, NULL, 10000));
}

static void connect_again(void)
{
    assert_true(poll_loop_run_until(loop, is_connected, NULL, 10000));
}

static struct quota_ask new_ask(int64_t prompt, int64_t output)
{
    return (struct quota_ask){.request = id_new(clock_wall_ms()),
                              .tenant_id = next_tenant,
                              .project_id = 1,
                              .key_id = 1,
                              .prompt_tokens = prompt,
                              .output_tokens = output,
                              .slot_deadline_ms = 60000};
}

static void renew(struct quota_ask *ask)
{
    ask->request = id_new(clock_wall_ms());
}

static int setup(void **state)
{
    const struct redis_config cfg = {.socket_path = server.socket_path,
                                     .connect_timeout_ms = 300,
                                     .command_timeout_ms = 200,
                                     .in_flight_max = 256};

    (void)state;
    loop = poll_loop_new();
    assert_int_equal(redis_open(loop, &cfg, &redis), ST_OK);
    assert_int_equal(quota_open(loop, redis, &quota), ST_OK);
    connect_again();
    next_tenant++;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    quota_close(quota);
    redis_close(redis);
    poll_loop_free(loop);
    return 0;
}

static void test_no_limit_grants_and_says_so(void **state)
{
    struct quota_ask ask = new_ask(10, 20);
    struct quota_grant g = reserve(&ask);

    (void)state;
    assert_int_equal(g.status, ST_OK);
    assert_int_equal(g.requests.limit, 0);
    assert_int_equal(g.tokens.limit, 0);
    assert_null(g.refused);
}

static void test_the_tightest_limit_is_told(void **state)
{
    struct quota_ask ask = new_ask(10, 20);
    struct quota_grant g;

    (void)state;
    ask.tenant = (struct quota_limits){.requests_per_min = 60, .tokens_per_min = 6000};
    ask.key = (struct quota_limits){.requests_per_min = 120, .tokens_per_min = 600};
    g = reserve(&ask);
    assert_int_equal(g.status, ST_OK);
    assert_int_equal(g.requests.limit, 60);
    assert_int_equal(g.requests.remaining, 59);
    assert_int_equal(g.requests.reset_ms, 1000);
    assert_int_equal(g.tokens.limit, 600);
    assert_int_equal(g.tokens.remaining, 570);
    assert_int_equal(g.tokens.reset_ms, 3000);
}

static void test_a_refusal_burns_nothing(void **state)
{
    struct quota_ask ask = new_ask(50, 50);
    struct quota_grant g;

    (void)state;
    ask.tenant.requests_per_min = 1000;
    ask.key = (struct quota_limits){.tokens_per_min = 100, .concurrency = 8};
    assert_int_equal(reserve(&ask).status, ST_OK);
    for (int i = 0; i < 20; i++) {
        renew(&ask);
        g = reserve(&ask);
        assert_int_equal(g.status, ST_LIMITED);
        assert_string_equal(g.refused, "tokens per min (key)");
        assert_in_range(g.retry_after_ms, 50000, 60000);
    }
    /* requests per min: one was taken, the refused took none */
    assert_true(g.requests.remaining >= 999);
    ask.key.tokens_per_min = 0;
    for (int i = 0; i < 7; i++) { /* seven of eight slots are free */
        renew(&ask);
        assert_int_equal(reserve(&ask).status, ST_OK);
    }
    renew(&ask);
    g = reserve(&ask);
    assert_int_equal(g.status, ST_LIMITED);
    assert_string_equal(g.refused, "concurrent requests (key)");
    assert_in_range(g.retry_after_ms, 1, 1000);
}

static void test_what_never_fits_is_too_large(void **state)
{
    struct quota_ask ask = new_ask(60, 50);

    (void)state;
    ask.project.tokens_per_min = 100;
    assert_int_equal(reserve(&ask).status, ST_TOO_LARGE);
    ask.output_tokens = 40;
    assert_int_equal(reserve(&ask).status, ST_OK);
}

static void test_settling_returns_the_difference_once(void **state)
{
    struct quota_ask ask = new_ask(100, 900), other = new_ask(1, 0);
    struct quota_grant g;

    (void)state;
    ask.key.tokens_per_min = other.key.tokens_per_min = 1000;
    assert_int_equal(reserve(&ask).status, ST_OK);
    settle(&ask, 300);
    settle(&ask, 300);
    settle(&ask, 0);
    g = reserve(&other);
    assert_int_equal(g.status, ST_OK);
    assert_in_range(g.tokens.remaining, 699, 720); /* 700 - 1, and what time brought */
}

static void test_what_never_ran_gives_all_back(void **state)
{
    struct quota_ask ask = new_ask(100, 900);
    struct quota_grant g;

    (void)state;
    ask.key =
        (struct quota_limits){.requests_per_min = 1, .tokens_per_min = 1000, .concurrency = 1};
    for (int i = 0; i < 5; i++) {
        renew(&ask);
        g = reserve(&ask);
        assert_int_equal(g.status, ST_OK);
        assert_int_equal(g.requests.remaining, 0);
        settle(&ask, -1);
    }
}

static void test_using_more_than_reserved_becomes_a_debt(void **state)
{
    struct quota_ask ask = new_ask(10, 10);
    struct quota_grant g;

    (void)state;
    ask.key.tokens_per_min = 6000;
    assert_int_equal(reserve(&ask).status, ST_OK);
    settle(&ask, 12000);
    renew(&ask);
    g = reserve(&ask);
    assert_int_equal(g.status, ST_LIMITED);
    /* 6,000 tokens of debt and 20 to ask for, at 100 a second */
    assert_in_range(g.retry_after_ms, 59000, 60200);
    assert_int_equal(g.tokens.remaining, 0);
}

static void test_a_slot_of_a_dead_gateway_comes_free(void **state)
{
    struct quota_ask dead = new_ask(1, 1), next;
    int64_t start = clock_mono_ms();

    (void)state;
    dead.key.concurrency = 1;
    dead.slot_deadline_ms = 150;
    assert_int_equal(reserve(&dead).status, ST_OK);
    next = dead;
    renew(&next);
    assert_int_equal(reserve(&next).status, ST_LIMITED);
    while (reserve(&next).status == ST_LIMITED)
        assert_true(clock_mono_ms() - start < 5000);
    assert_in_range(clock_mono_ms() - start, 149, 1000);
    /* the dead one's late release frees nobody else's slot */
    settle(&dead, 2);
    renew(&next);
    assert_int_equal(reserve(&next).status, ST_LIMITED);
}

static void test_a_frozen_redis_refuses_in_time_and_keeps_nothing(void **state)
{
    struct quota_ask ask = new_ask(500, 500);
    struct quota_grant g;
    int64_t start;

    (void)state;
    ask.key = (struct quota_limits){.tokens_per_min = 1000, .concurrency = 1};
    redis_server_freeze(&server);
    start = clock_mono_ms();
    g = reserve(&ask);
    assert_int_equal(g.status, ST_UNAVAILABLE);
    assert_in_range(clock_mono_ms() - start, 0, 1000);
    assert_int_equal(quota_unsettled(quota), 1); /* Redis may take it yet: it is given back */
    redis_server_thaw(&server);
    connect_again();
    assert_true(poll_loop_run_until(loop, is_settled, NULL, 10000));
    renew(&ask);
    assert_int_equal(reserve(&ask).status, ST_OK);
}

static void test_settlements_wait_for_redis(void **state)
{
    struct quota_ask ask = new_ask(500, 500);

    (void)state;
    ask.key.tokens_per_min = 1000;
    assert_int_equal(reserve(&ask).status, ST_OK);
    redis_server_crash(&server);
    quota_settle(quota, &ask, 0);
    for (int i = 0; i < 5; i++)
        poll_loop_turn(loop, 20);
    assert_int_equal(quota_unsettled(quota), 1);
    redis_server_resume(&server);
    connect_again();
    assert_true(poll_loop_run_until(loop, is_settled, NULL, 10000));
    /* the append-only file had the reservation, so the settlement found it */
    renew(&ask);
    assert_int_equal(reserve(&ask).status, ST_OK);
}

static void test_a_flush_loses_a_burst_and_no_service(void **state)
{
    static const char *const flush_all[] = {"FLUSHALL"}, *const flush[] = {"SCRIPT", "FLUSH"};
    struct quota_ask ask = new_ask(500, 500);

    (void)state;
    ask.key.tokens_per_min = 1000;
    assert_int_equal(reserve(&ask).status, ST_OK);
    redis_server_ask(&server, flush_all, 1);
    redis_server_ask(&server, flush, 2);
    settle(&ask, 10);
    renew(&ask);
    assert_int_equal(reserve(&ask).status, ST_OK);
    renew(&ask);
    assert_int_equal(reserve(&ask).status, ST_LIMITED);
}

static void test_a_release_before_its_admission_cancels_it(void **state)
{
    struct quota_ask ask = new_ask(500, 500);

    (void)state;
    ask.key.tokens_per_min = 1000;
    settle(&ask, -1);
    assert_int_equal(reserve(&ask).status, ST_UNAVAILABLE);
    renew(&ask);
    assert_int_equal(reserve(&ask).status, ST_OK);
}

static void test_keys_go_when_the_buckets_are_full(void **state)
{
    static const char *const flush_all[] = {"FLUSHALL"}, *const size[] = {"DBSIZE"};
    struct quota_ask ask = new_ask(5, 5);

    (void)state;
    redis_server_ask(&server, flush_all, 1);
    ask.key = ask.tenant =
        (struct quota_limits){.requests_per_min = 60, .tokens_per_min = 1000, .concurrency = 4};
    assert_int_equal(reserve(&ask).status, ST_OK);
    assert_int_equal(redis_server_ask(&server, size, 1), 7);
    settle(&ask, -1);
    assert_int_equal(redis_server_ask(&server, size, 1), 0);
}

static void test_other_tenants_are_untouched(void **state)
{
    struct quota_ask ask = new_ask(500, 500), other;

    (void)state;
    ask.tenant.tokens_per_min = 1000;
    other = ask;
    other.tenant_id = next_tenant + 1000;
    renew(&other);
    assert_int_equal(reserve(&ask).status, ST_OK);
    assert_int_equal(reserve(&other).status, ST_OK);
}

static void test_concurrent_asks_never_pass_the_limit(void **state)
{
    struct quota_ask ask = new_ask(10, 0);
    struct got got[100] = {{0}};
    int ok = 0;

    (void)state;
    ask.key = (struct quota_limits){.tokens_per_min = 100, .concurrency = 50};
    for (size_t i = 0; i < COUNT_OF(got); i++) {
        renew(&ask);
        quota_reserve(quota, &ask, on_grant, &got[i]);
    }
    for (size_t i = 0; i < COUNT_OF(got); i++) {
        assert_true(poll_loop_run_until(loop, is_granted, &got[i], 5000));
        ok += got[i].grant.status == ST_OK;
    }
    assert_int_equal(ok, 10);
}

int main(void)
{
#define QUOTA_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        QUOTA_TEST(test_no_limit_grants_and_says_so),
        QUOTA_TEST(test_the_tightest_limit_is_told),
        QUOTA_TEST(test_a_refusal_burns_nothing),
        QUOTA_TEST(test_what_never_fits_is_too_large),
        QUOTA_TEST(test_settling_returns_the_difference_once),
        QUOTA_TEST(test_what_never_ran_gives_all_back),
        QUOTA_TEST(test_using_more_than_reserved_becomes_a_debt),
        QUOTA_TEST(test_a_slot_of_a_dead_gateway_comes_free),
        QUOTA_TEST(test_a_frozen_redis_refuses_in_time_and_keeps_nothing),
        QUOTA_TEST(test_settlements_wait_for_redis),
        QUOTA_TEST(test_a_flush_loses_a_burst_and_no_service),
        QUOTA_TEST(test_a_release_before_its_admission_cancels_it),
        QUOTA_TEST(test_keys_go_when_the_buckets_are_full),
        QUOTA_TEST(test_other_tenants_are_untouched),
        QUOTA_TEST(test_concurrent_asks_never_pass_the_limit),
    };
    int failed;

    signal(SIGPIPE, SIG_IGN);
    if (!redis_server_start(&server))
        return 0;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
