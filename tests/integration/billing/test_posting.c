/* Rows from the journal into a real PostgreSQL, whatever stands in their way for a while. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "tests/lib/billing_rig.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void finished_requests_are_rows_and_prices_are_known(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct price price;
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_wait_for(rig_is_ready, b);
    assert_int_equal(billing_price(b, "smollm2-135m-instruct", &price), ST_OK);
    assert_int_equal(price.output_nanos, 400000000);
    assert_int_equal(billing_price(b, "some-model-of-the-user", &price), ST_OK);
    assert_string_equal(price.currency, "USD");
    rig_run_requests(b, 1000, 1100);
    rig_wait_for(rig_is_posted, b);
    assert_int_equal(rig_rows_of(1000, 1100), 100);
    assert_int_equal(rig_number("SELECT count(*) FROM usage_events WHERE cost_nanos <>"
                                " ((prompt_tokens - cached_tokens) * 100000000::bigint +"
                                "  cached_tokens * 50000000::bigint +"
                                "  output_tokens * 400000000::bigint + 500000) / 1000000"),
                     0);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

static void a_new_price_is_seen_without_a_restart(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct price price = {.id = 0};
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_wait_for(rig_is_ready, b);
    rig_execute("INSERT INTO prices (model, input_nanos, cached_nanos, output_nanos,"
                " currency) VALUES ('new-model', 1, 2, 3, 'EUR')");
    for (int64_t end = clock_mono_ms() + RIG_WAIT_MS;
         price.output_nanos != 3 && clock_mono_ms() < end;) {
        poll_loop_turn(rig.loop, 5);
        assert_int_equal(billing_price(b, "new-model", &price), ST_OK);
    }
    assert_string_equal(price.currency, "EUR");
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

static void rows_wait_on_disk_while_postgres_is_away(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_wait_for(rig_is_ready, b);
    rig_run_requests(b, 2000, 2020);
    pg_server_crash(&rig.server);
    rig_run_requests(b, 2020, 2200);
    /* Also through an end of the process. */
    billing_close(b, 0);
    b = rig_open_billing(dir, rig.server.conninfo);
    assert_false(billing_is_ready(b));
    rig_run_requests(b, 2200, 2220);
    pg_server_resume(&rig.server);
    rig_wait_for(rig_is_ready, b);
    rig_wait_for(rig_is_posted, b);
    rig_execute("SELECT 1"); /* connects again */
    assert_int_equal(rig_rows_of(2000, 2220), 220);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

/* A limit on the size of files stands for a full disk. */
static void a_journal_that_cant_be_written_is_not_ready(void **state)
{
    struct billing_admission a = sample_admission(2990);
    struct rlimit before, none;
    char dir[TEMP_DIR_BYTES];
    struct billing *b;
    enum status s;
    bool is_ready_then;

    (void)state;
    temp_dir_make(dir);
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_wait_for(rig_is_ready, b);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    s = rig_try_admit(b, &a);
    is_ready_then = billing_is_ready(b);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(s, ST_IO);
    assert_false(is_ready_then);
    rig_wait_for(rig_is_ready, b); /* it tries again by itself */
    rig_run_requests(b, 2990, 3000);
    rig_wait_for(rig_is_posted, b);
    assert_int_equal(rig_rows_of(2990, 3000), 10);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

static void replaying_twice_posts_nothing_twice(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct billing *b;
    char *data;
    size_t len;

    (void)state;
    temp_dir_make(dir);
    /* A conninfo that leads nowhere: everything stays in the journal. */
    b = rig_open_billing(dir, "host=/nowhere connect_timeout=1");
    rig_run_requests(b, 3000, 3050);
    billing_close(b, 0);
    data = segment_get(dir, 1, &len);
    for (int i = 0; i < 2; i++) {
        temp_dir_clear(dir);
        segment_put(dir, 1, data, len);
        b = rig_open_billing(dir, rig.server.conninfo);
        rig_wait_for(rig_is_ready, b);
        assert_int_equal(rig_rows_of(3000, 3050), 50);
        billing_close(b, 1000);
    }
    free(data);
    temp_dir_remove(dir);
}

static void two_gateways_make_the_same_partitions_at_once(void **state)
{
    char dir[2][TEMP_DIR_BYTES];
    struct billing *b[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        temp_dir_make(dir[i]);
        b[i] = rig_open_billing(dir[i], rig.server.conninfo);
        rig_wait_for(rig_is_ready, b[i]);
    }
    for (unsigned month = 0; month < 24; month++) {
        for (unsigned i = 0; i < 2; i++) {
            struct billing_admission a = sample_admission(4000 + 2 * month + i);
            struct billing_final f = sample_final(4000 + 2 * month + i);

            a.admitted_at_us += (int64_t)month * 31 * 86400 * 1000000;
            f.ended_at_us = a.admitted_at_us;
            rig_admit(b[i], &a);
            rig_finish(b[i], &f);
        }
    }
    for (int i = 0; i < 2; i++) {
        rig_wait_for(rig_is_posted, b[i]);
        billing_close(b[i], 1000);
        temp_dir_remove(dir[i]);
    }
    assert_int_equal(rig_rows_of(4000, 4048), 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finished_requests_are_rows_and_prices_are_known),
        cmocka_unit_test(a_new_price_is_seen_without_a_restart),
        cmocka_unit_test(rows_wait_on_disk_while_postgres_is_away),
        cmocka_unit_test(a_journal_that_cant_be_written_is_not_ready),
        cmocka_unit_test(replaying_twice_posts_nothing_twice),
        cmocka_unit_test(two_gateways_make_the_same_partitions_at_once),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
