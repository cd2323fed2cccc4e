/* store/pg.c, pg_statement.c, pg_pool.c and migrate.c against a real PostgreSQL. */
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "store/migrate.h"
#include "store/pg.h"
#include "tests/lib/pg_server.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static struct pg_server server;
static struct reason why;

static struct pg *open_pg(void)
{
    struct pg *pg = NULL;

    assert_int_equal(pg_open(server.conninfo, &pg, &why), ST_OK);
    return pg;
}

static int64_t query_int(struct pg *pg, const char *sql)
{
    struct pg_result *r = NULL;
    int64_t v;

    assert_int_equal(pg_exec(pg, sql, 0, NULL, &r, &why), ST_OK);
    v = pg_int64(r, 0, 0);
    pg_result_free(r);
    return v;
}

static void test_values_and_nulls(void **state)
{
    struct pg *pg = open_pg();
    struct pg_result *r = NULL;
    const char *params[] = {"it's", NULL};

    (void)state;
    assert_int_equal(
        pg_exec(pg, "SELECT $1::text, $2::text, 42::bigint, true", 2, params, &r, &why), ST_OK);
    assert_int_equal(pg_rows(r), 1);
    assert_string_equal(pg_text(r, 0, 0), "it's");
    assert_null(pg_text(r, 0, 1));
    assert_int_equal(pg_int64(r, 0, 1), 0);
    assert_int_equal(pg_int64(r, 0, 2), 42);
    assert_true(pg_bool(r, 0, 3));
    pg_result_free(r);
    pg_close(pg);
}

static void test_errors_have_their_status_and_no_values(void **state)
{
    struct pg *pg = open_pg();
    const char *params[] = {"hunter2"};

    (void)state;
    assert_int_equal(pg_exec_script(pg,
                                    "CREATE TABLE u (x text PRIMARY KEY); INSERT INTO u VALUES "
                                    "('hunter2')",
                                    &why),
                     ST_OK);
    assert_int_equal(pg_exec(pg, "INSERT INTO u VALUES ($1)", 1, params, NULL, &why), ST_CONFLICT);
    assert_null(strstr(why.text, "hunter2"));
    assert_int_equal(pg_exec(pg, "SELECT $1::bigint", 1, params, NULL, &why), ST_INVALID);
    assert_null(strstr(why.text, "hunter2"));
    assert_int_equal(pg_exec(pg, "SELEC", 0, NULL, NULL, &why), ST_INVALID);
    pg_close(pg);
}

static void test_a_failed_transaction_does_not_commit(void **state)
{
    struct pg *pg = open_pg();

    (void)state;
    assert_int_equal(pg_begin(pg, &why), ST_OK);
    assert_int_equal(pg_exec(pg, "CREATE TABLE gone (x int)", 0, NULL, NULL, &why), ST_OK);
    assert_int_equal(pg_exec(pg, "SELECT 1/0", 0, NULL, NULL, &why), ST_INVALID);
    assert_int_equal(pg_commit(pg, &why), ST_INVALID);
    assert_int_equal(query_int(pg, "SELECT count(to_regclass('gone'))"), 0);
    pg_close(pg);
}

static void test_the_server_statement_timeout_is_unavailable(void **state)
{
    struct pg *pg = open_pg();

    (void)state;
    assert_int_equal(pg_exec(pg, "SET statement_timeout = 50", 0, NULL, NULL, &why), ST_OK);
    assert_int_equal(pg_exec(pg, "SELECT pg_sleep(30)", 0, NULL, NULL, &why), ST_UNAVAILABLE);
    assert_int_equal(query_int(pg, "SELECT 1"), 1);
    pg_close(pg);
}

static void test_a_frozen_server_hangs_nobody(void **state)
{
    struct pg *pg = open_pg();
    int64_t start;

    (void)state;
    assert_int_equal(query_int(pg, "SELECT 1"), 1);
    pg_set_timeout(pg, 200);
    pg_server_freeze(&server);
    start = clock_mono_ms();
    assert_int_equal(pg_exec(pg, "SELECT 1", 0, NULL, NULL, &why), ST_UNAVAILABLE);
    assert_in_range(clock_mono_ms() - start, 150, 2000);
    /* connecting to it has a limit too: connect_timeout */
    start = clock_mono_ms();
    assert_int_equal(pg_exec(pg, "SELECT 1", 0, NULL, NULL, &why), ST_UNAVAILABLE);
    assert_in_range(clock_mono_ms() - start, 0, 6000);
    pg_server_thaw(&server);
    pg_set_timeout(pg, 0);
    for (int i = 0; i < 100; i++) {
        if (pg_exec(pg, "SELECT 1", 0, NULL, NULL, &why) == ST_OK)
            break;
        poll(NULL, 0, 50);
    }
    assert_int_equal(query_int(pg, "SELECT 1"), 1);
    pg_close(pg);
}

static void test_it_comes_back_after_a_crash_but_not_within_a_transaction(void **state)
{
    struct pg *idle = open_pg(), *busy = open_pg();
    uint64_t session = pg_session(idle);

    (void)state;
    assert_int_equal(pg_begin(busy, &why), ST_OK);
    pg_server_crash(&server);
    assert_int_equal(pg_exec(idle, "SELECT 1", 0, NULL, NULL, &why), ST_UNAVAILABLE);
    pg_server_resume(&server);
    assert_int_equal(pg_exec(busy, "SELECT 1", 0, NULL, NULL, &why), ST_UNAVAILABLE);
    assert_int_equal(pg_exec(busy, "SELECT 1", 0, NULL, NULL, &why), ST_UNAVAILABLE);
    pg_rollback(busy);
    assert_int_equal(query_int(busy, "SELECT 1"), 1);
    while (pg_exec(idle, "SELECT 1", 0, NULL, NULL, &why) != ST_OK)
        poll(NULL, 0, 20);
    assert_true(pg_session(idle) > session);
    pg_close(idle);
    pg_close(busy);
}

static void test_a_notification_wakes(void **state)
{
    struct pg *listener = open_pg(), *sender = open_pg();

    (void)state;
    assert_int_equal(pg_exec(listener, "LISTEN c", 0, NULL, NULL, &why), ST_OK);
    assert_false(pg_wait_notify(listener, 0, -1));
    assert_int_equal(pg_exec(sender, "NOTIFY c", 0, NULL, NULL, &why), ST_OK);
    assert_true(pg_wait_notify(listener, 5000, -1));
    pg_close(listener);
    pg_close(sender);
}

struct job {
    struct work work;
    sem_t done;
    int64_t value;
};

static void run_job(struct work *w, void *pg)
{
    struct job *j = CONTAINER_OF(w, struct job, work);

    j->value = query_int(pg, "SELECT 7");
    sem_post(&j->done);
}

static void test_the_pool_runs_works_with_a_connection(void **state)
{
    struct pg_pool *pool = NULL;
    struct job jobs[8] = {0};

    (void)state;
    assert_int_equal(pg_pool_start(server.conninfo, 2, 16, &pool), ST_OK);
    assert_false(pg_pool_is_reachable(pool));
    for (size_t i = 0; i < COUNT_OF(jobs); i++) {
        sem_init(&jobs[i].done, 0, 0);
        jobs[i].work.on_run = run_job;
        assert_int_equal(pg_pool_submit(pool, &jobs[i].work), ST_OK);
    }
    for (size_t i = 0; i < COUNT_OF(jobs); i++) {
        sem_wait(&jobs[i].done);
        assert_int_equal(jobs[i].value, 7);
        sem_destroy(&jobs[i].done);
    }
    assert_true(pg_pool_is_reachable(pool));
    pg_pool_stop(pool);
}

/* ---- migrations ---- */

#define FILE_OF(name, text)                                                                        \
    {                                                                                              \
        "migrations/" name, text, text + sizeof text - 1                                           \
    }
static const char one[] = "CREATE TABLE m1 (x int);", one_changed[] = "CREATE TABLE m1 (x text);";
static const char two[] = "CREATE TABLE m2 (x int); CREATE TABLE m3 (x int);";
static const char broken[] = "CREATE TABLE m4 (x int); SELECT 1/0;";

static enum status run_migrations(struct pg *pg, const struct embedded_file *files, int *n)
{
    return migrate(pg, files, NULL, NULL, n, &why);
}

static void test_migrations_apply_once_in_order_and_whole(void **state)
{
    struct pg *pg = open_pg();
    const struct embedded_file first[] = {FILE_OF("0001_one.sql", one), {0}};
    const struct embedded_file both[] = {
        FILE_OF("0002_two.sql", two), FILE_OF("0001_one.sql", one), {0}};
    const struct embedded_file changed[] = {
        FILE_OF("0001_one.sql", one_changed), FILE_OF("0002_two.sql", two), {0}};
    const struct embedded_file bad[] = {FILE_OF("0001_one.sql", one),
                                        FILE_OF("0002_two.sql", two),
                                        FILE_OF("0003_bad.sql", broken),
                                        {0}};
    int n = -1;

    (void)state;
    assert_int_equal(migrate_check(pg, first, &why), ST_CONFLICT);
    assert_int_equal(run_migrations(pg, first, &n), ST_OK);
    assert_int_equal(n, 1);
    assert_int_equal(run_migrations(pg, both, &n), ST_OK);
    assert_int_equal(n, 1);
    assert_int_equal(run_migrations(pg, both, &n), ST_OK);
    assert_int_equal(n, 0);
    assert_int_equal(migrate_check(pg, both, &why), ST_OK);
    assert_int_equal(run_migrations(pg, changed, &n), ST_CONFLICT);
    assert_int_equal(run_migrations(pg, first, &n), ST_CONFLICT); /* the database is newer */
    assert_int_equal(run_migrations(pg, bad, &n), ST_INVALID);
    assert_non_null(strstr(why.text, "0003_bad.sql"));
    assert_int_equal(query_int(pg, "SELECT count(to_regclass('m4'))"), 0);
    assert_int_equal(pg_exec_script(pg, "DROP TABLE schema_migrations, m1, m2, m3", &why), ST_OK);
    pg_close(pg);
}

static void test_the_embedded_migrations_apply(void **state)
{
    struct pg *pg = open_pg();
    int n = 0;

    (void)state;
    assert_int_equal(run_migrations(pg, embedded_files, &n), ST_OK);
    assert_true(n >= 1);
    assert_int_equal(migrate_check(pg, embedded_files, &why), ST_OK);
    pg_close(pg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_nulls),
        cmocka_unit_test(test_errors_have_their_status_and_no_values),
        cmocka_unit_test(test_a_failed_transaction_does_not_commit),
        cmocka_unit_test(test_the_server_statement_timeout_is_unavailable),
        cmocka_unit_test(test_a_frozen_server_hangs_nobody),
        cmocka_unit_test(test_it_comes_back_after_a_crash_but_not_within_a_transaction),
        cmocka_unit_test(test_a_notification_wakes),
        cmocka_unit_test(test_the_pool_runs_works_with_a_connection),
        cmocka_unit_test(test_migrations_apply_once_in_order_and_whole),
        cmocka_unit_test(test_the_embedded_migrations_apply),
    };
    int failed;

    if (!pg_server_start(&server))
        return 0;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    pg_server_stop(&server);
    return failed;
}
