/* auth.c against a real PostgreSQL: checks, the cache, the change log, and Postgres away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/auth.h"
#include "auth/keys.h"
#include "base/clock.h"
#include "base/size.h"
#include "store/migrate.h"
#include "tests/lib/pg_server.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define PEPPER       "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define OTHER_PEPPER "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
/* More than the follower waits for an answer: a cached key outlives one question that was lost. */
#define STALE_MAX_MS 3000

static struct pg_server server;
static struct loop *loop;
static struct pg *pg;
static struct pg_pool *pool;
static struct auth *auth;
static struct reason why;

struct probe {
    struct auth_check check;
    int done;
};

static void on_done(struct auth_check *c)
{
    CONTAINER_OF(c, struct probe, check)->done++;
}

static bool is_done(void *arg)
{
    return ((struct probe *)arg)->done > 0;
}

/* True: decided at once. */
static bool begin_at(struct probe *p, const char *key, int64_t wall_ms)
{
    bool decided;

    memset(p, 0, sizeof *p);
    p->check.loop = loop;
    p->check.on_done = on_done;
    decided = auth_check(auth, &p->check, key, strlen(key), wall_ms);
    assert_int_equal(p->done, 0);
    return decided;
}

static bool begin(struct probe *p, const char *key)
{
    return begin_at(p, key, clock_wall_ms());
}

static enum status check(struct probe *p, const char *key)
{
    if (!begin(p, key))
        assert_true(poll_loop_run_until(loop, is_done, p, 10000));
    return p->check.status;
}

static void run_sql(const char *sql)
{
    assert_int_equal(pg_exec(pg, sql, 0, NULL, NULL, &why), ST_OK);
}

static void make_key(const char *tenant, const char *pepper, char *key, char *public_id)
{
    const struct key_spec spec = {
        .tenant = tenant,
        .project = "default",
        .name = "test",
        .scopes = SCOPE_INFERENCE,
        .priority = KEY_PRIORITY_LOW,
        .key_limits = {.tokens_per_min = 77},
        .tenant_limits = {.requests_per_min = 5, .tokens_per_min = -1, .concurrency = -1}};

    assert_int_equal(key_create(pg, pepper, &spec, key, public_id, &why), ST_OK);
}

static bool is_ready(void *arg)
{
    (void)arg;
    return auth_is_ready(auth);
}

static void wait_ready(void)
{
    int64_t deadline = clock_mono_ms() + 10000;

    while (!is_ready(NULL)) {
        assert_true(clock_mono_ms() < deadline);
        poll_loop_turn(loop, 5);
    }
}

/* Checks until the status is there; how long that took. */
static int64_t wait_status(const char *key, enum status wanted)
{
    int64_t start = clock_mono_ms();
    struct probe p;

    while (check(&p, key) != wanted) {
        assert_true(clock_mono_ms() - start < 10000);
        poll_loop_turn(loop, 5);
    }
    return clock_mono_ms() - start;
}

/* The log's rows about a key's own making come after its first check and drop it once more. Rows
 * come in order: when a later change has arrived, those have too. */
static void wait_cached(const char *key)
{
    char later[KEY_TEXT_BYTES], id[32];
    struct probe p;

    make_key("later", PEPPER, later, id);
    wait_status(later, ST_OK);
    assert_int_equal(key_update(pg, id, "disable", &why), ST_OK);
    wait_status(later, ST_UNAUTHENTICATED);
    wait_status(key, ST_OK);
    assert_true(begin(&p, key));
}

static void test_a_key_is_asked_for_once_and_then_cached(void **state)
{
    char key[KEY_TEXT_BYTES], id[32];
    struct probe p;

    (void)state;
    make_key("acme", PEPPER, key, id);
    assert_false(begin(&p, key));
    assert_true(poll_loop_run_until(loop, is_done, &p, 10000));
    assert_int_equal(p.check.status, ST_OK);
    wait_cached(key);
    assert_int_equal(check(&p, key), ST_OK);
    assert_string_equal(p.check.principal.key_public_id, id);
    assert_int_equal(p.check.principal.scopes, SCOPE_INFERENCE);
    assert_int_equal(p.check.principal.weight, 1000);
    assert_int_equal(p.check.principal.priority, KEY_PRIORITY_LOW);
    assert_int_equal(p.check.principal.key.tokens_per_min, 77);
    assert_int_equal(p.check.principal.tenant.requests_per_min, 5);
    assert_int_equal(p.check.principal.tenant.tokens_per_min, 0);
    assert_true(p.check.principal.tenant_id > 0 && p.check.principal.project_id > 0);
}

static void test_malformed_and_unknown_and_wrong_keys_are_refused_alike(void **state)
{
    char key[KEY_TEXT_BYTES], id[32];
    struct probe p;

    (void)state;
    assert_true(begin(&p, "sk-something-else"));
    assert_int_equal(p.check.status, ST_UNAUTHENTICATED);
    assert_string_equal(p.check.reason.text, "Incorrect API key provided.");
    key_make(key);
    assert_int_equal(check(&p, key), ST_UNAUTHENTICATED);
    assert_string_equal(p.check.reason.text, "Incorrect API key provided.");
    assert_true(begin(&p, key)); /* "no such key" is cached for a moment */
    make_key("acme", OTHER_PEPPER, key, id);
    assert_int_equal(check(&p, key), ST_UNAUTHENTICATED);
    assert_string_equal(p.check.reason.text, "Incorrect API key provided.");
}

static void test_a_disabled_key_stops_within_a_second(void **state)
{
    char key[KEY_TEXT_BYTES], id[32];
    struct probe p;

    (void)state;
    make_key("acme", PEPPER, key, id);
    assert_int_equal(check(&p, key), ST_OK);
    assert_int_equal(key_update(pg, id, "disable", &why), ST_OK);
    assert_in_range(wait_status(key, ST_UNAUTHENTICATED), 0, 1000);
    assert_int_equal(key_update(pg, id, "enable", &why), ST_OK);
    assert_in_range(wait_status(key, ST_OK), 0, 1000);
    assert_int_equal(key_update(pg, id, "expire", &why), ST_OK);
    assert_in_range(wait_status(key, ST_UNAUTHENTICATED), 0, 1000);
    assert_int_equal(key_update(pg, "nobody", "disable", &why), ST_NOT_FOUND);
}

static void test_a_disabled_tenant_stops_all_its_keys(void **state)
{
    char key[KEY_TEXT_BYTES], other[KEY_TEXT_BYTES], id[32];
    struct probe p;

    (void)state;
    make_key("gone", PEPPER, key, id);
    make_key("stays", PEPPER, other, id);
    wait_cached(key);
    wait_cached(other);
    assert_true(begin(&p, key));
    run_sql("UPDATE tenants SET disabled_at = now() WHERE name = 'gone'");
    assert_in_range(wait_status(key, ST_UNAUTHENTICATED), 0, 1000);
    assert_true(begin(&p, other)); /* not even asked for again */
    assert_int_equal(p.check.status, ST_OK);
}

static void test_expiry_is_compared_at_each_use(void **state)
{
    char key[KEY_TEXT_BYTES], id[32];
    int64_t expires_s = clock_wall_ms() / 1000 + 3600;
    const struct key_spec spec = {.tenant = "acme",
                                  .project = "default",
                                  .name = "",
                                  .scopes = SCOPE_INFERENCE,
                                  .tenant_limits = {-1, -1, -1},
                                  .expires_at_s = expires_s};
    struct probe p;

    (void)state;
    assert_int_equal(key_create(pg, PEPPER, &spec, key, id, &why), ST_OK);
    wait_cached(key);
    assert_true(begin_at(&p, key, expires_s * 1000 - 1));
    assert_int_equal(p.check.status, ST_OK);
    assert_true(begin_at(&p, key, expires_s * 1000));
    assert_int_equal(p.check.status, ST_UNAUTHENTICATED);
    assert_string_equal(p.check.reason.text, "This API key has expired.");
}

static void test_a_label_gives_no_orders_to_a_terminal(void **state)
{
    static const char *const bad[] = {"a\nb", "\x1b[31m", "\x7f", "\xc2\x9b", "\xff"};
    char key[KEY_TEXT_BYTES], id[32];
    struct key_spec spec = {.tenant = "acme",
                            .project = "default",
                            .scopes = SCOPE_INFERENCE,
                            .tenant_limits = {-1, -1, -1}};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        spec.name = bad[i];
        assert_int_equal(key_create(pg, PEPPER, &spec, key, id, &why), ST_INVALID);
        assert_string_equal(why.param, "name");
    }
    spec.name = "Z\xc3\xbcrich \xf0\x9f\x8e\x89";
    assert_int_equal(key_create(pg, PEPPER, &spec, key, id, &why), ST_OK);
}

/* While the table is locked, every question to it can be counted. */
static void test_a_stampede_asks_once(void **state)
{
    char key[KEY_TEXT_BYTES], id[32];
    struct probe *probes = calloc(100, sizeof *probes);
    struct pg *watcher = NULL;
    struct pg_result *r = NULL;
    int64_t waiting = 0;

    (void)state;
    assert_non_null(probes);
    assert_int_equal(pg_open(server.conninfo, &watcher, &why), ST_OK);
    make_key("acme", PEPPER, key, id);
    assert_int_equal(pg_begin(pg, &why), ST_OK);
    run_sql("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE");
    for (int i = 0; i < 100; i++)
        assert_false(begin(&probes[i], key));
    for (int i = 0; i < 20 || waiting == 0; i++) {
        assert_int_equal(pg_exec(watcher,
                                 "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = "
                                 "'Lock' AND query LIKE '%api_keys%'",
                                 0, NULL, &r, &why),
                         ST_OK);
        waiting = pg_int64(r, 0, 0);
        pg_result_free(r);
    }
    assert_int_equal(waiting, 1);
    assert_int_equal(pg_commit(pg, &why), ST_OK);
    for (int i = 0; i < 100; i++) {
        assert_true(poll_loop_run_until(loop, is_done, &probes[i], 10000));
        assert_int_equal(probes[i].check.status, ST_OK);
        assert_int_equal(probes[i].done, 1);
    }
    pg_close(watcher);
    free(probes);
}

static void test_made_up_keys_are_bounded(void **state)
{
    struct probe *probes = calloc(2000, sizeof *probes);
    char key[KEY_TEXT_BYTES];
    int refused_at_once = 0;

    (void)state;
    assert_non_null(probes);
    assert_int_equal(pg_begin(pg, &why), ST_OK);
    run_sql("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE");
    for (int i = 0; i < 2000; i++) {
        key_make(key);
        if (begin(&probes[i], key)) {
            assert_int_equal(probes[i].check.status, ST_UNAVAILABLE);
            probes[i].done = 1;
            refused_at_once++;
        }
    }
    assert_true(refused_at_once >= 1700);
    assert_int_equal(pg_commit(pg, &why), ST_OK);
    for (int i = 0; i < 2000; i++)
        assert_true(poll_loop_run_until(loop, is_done, &probes[i], 10000));
    free(probes);
}

static void test_cached_keys_serve_while_postgres_is_away_but_not_for_ever(void **state)
{
    char key[KEY_TEXT_BYTES], other[KEY_TEXT_BYTES], id[32];
    struct probe p;
    int64_t start;

    (void)state;
    make_key("acme", PEPPER, key, id);
    make_key("acme", PEPPER, other, id);
    wait_cached(key);
    pg_server_crash(&server);
    start = clock_mono_ms();
    assert_true(begin(&p, key));
    assert_int_equal(p.check.status, ST_OK);
    while (auth_is_ready(auth))
        poll_loop_turn(loop, 5);
    assert_true(begin(&p, other)); /* not cached: refused at once */
    assert_int_equal(p.check.status, ST_UNAVAILABLE);
    wait_status(key, ST_UNAVAILABLE);
    assert_in_range(clock_mono_ms() - start, STALE_MAX_MS - 700, STALE_MAX_MS + 300);
    pg_server_resume(&server);
    wait_ready();
    assert_in_range(wait_status(key, ST_OK), 0, 5000);
}

static void test_a_key_disabled_during_an_outage_is_refused_after_it(void **state)
{
    char key[KEY_TEXT_BYTES], id[32];

    (void)state;
    make_key("acme", PEPPER, key, id);
    wait_cached(key);
    pg_server_freeze(&server);
    while (auth_is_ready(auth))
        poll_loop_turn(loop, 5);
    pg_server_thaw(&server);
    pg_close(pg);
    assert_int_equal(pg_open(server.conninfo, &pg, &why), ST_OK);
    assert_int_equal(key_update(pg, id, "disable", &why), ST_OK);
    wait_ready();
    assert_in_range(wait_status(key, ST_UNAUTHENTICATED), 0, 1000);
}

static void test_a_frozen_postgres_hangs_no_check(void **state)
{
    char key[KEY_TEXT_BYTES], id[32];
    struct probe p;
    int64_t start;

    (void)state;
    make_key("acme", PEPPER, key, id);
    pg_server_freeze(&server);
    start = clock_mono_ms();
    assert_int_equal(check(&p, key), ST_UNAVAILABLE);
    assert_in_range(clock_mono_ms() - start, 0, 5000);
    pg_server_thaw(&server);
    wait_ready();
    assert_in_range(wait_status(key, ST_OK), 0, 8000);
}

static int setup(void **state)
{
    const struct auth_config cfg = {.conninfo = server.conninfo,
                                    .pepper = PEPPER,
                                    .poll_ms = 500,
                                    .stale_max_ms = STALE_MAX_MS,
                                    .cache_max = 1000};
    struct auth_config with_pool = cfg;
    int n;

    (void)state;
    loop = poll_loop_new();
    assert_int_equal(pg_open(server.conninfo, &pg, &why), ST_OK);
    assert_int_equal(migrate(pg, embedded_files, NULL, NULL, &n, &why), ST_OK);
    assert_int_equal(pg_pool_start(server.conninfo, 4, 1024, &pool), ST_OK);
    with_pool.pool = pool;
    assert_int_equal(auth_open(&with_pool, &auth, &why), ST_OK);
    wait_ready();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    auth_close(auth);
    pg_pool_stop(pool);
    pg_close(pg);
    poll_loop_free(loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_is_asked_for_once_and_then_cached),
        cmocka_unit_test(test_malformed_and_unknown_and_wrong_keys_are_refused_alike),
        cmocka_unit_test(test_a_disabled_key_stops_within_a_second),
        cmocka_unit_test(test_a_disabled_tenant_stops_all_its_keys),
        cmocka_unit_test(test_expiry_is_compared_at_each_use),
        cmocka_unit_test(test_a_label_gives_no_orders_to_a_terminal),
        cmocka_unit_test(test_a_stampede_asks_once),
        cmocka_unit_test(test_made_up_keys_are_bounded),
        cmocka_unit_test(test_a_frozen_postgres_hangs_no_check),
        cmocka_unit_test(test_a_key_disabled_during_an_outage_is_refused_after_it),
        cmocka_unit_test(test_cached_keys_serve_while_postgres_is_away_but_not_for_ever),
    };
    int failed;

    if (!pg_server_start(&server))
        return 0;
    failed = cmocka_run_group_tests(tests, setup, teardown);
    pg_server_stop(&server);
    return failed;
}
