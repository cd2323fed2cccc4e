/* Rows that a real PostgreSQL refuses: those behind them are posted, and none is lost or doubled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "tests/lib/billing_rig.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define N 50

static struct reason why;

static int64_t dead_letters(void)
{
    int64_t n = -1;

    assert_int_equal(dead_letters_count(rig.pg, &n, &why), ST_OK);
    return n;
}

static void retry(int64_t posted, int64_t refused)
{
    struct dead_letter_retry done;

    assert_int_equal(dead_letters_retry(rig.pg, &done, &why), ST_OK);
    assert_int_equal(done.posted, posted);
    assert_int_equal(done.refused, refused);
}

/* Refuses the fifth of a test's requests and the last. */
static void poison(unsigned from)
{
    char sql[256];

    snprintf(sql, sizeof sql,
             "ALTER TABLE usage_events ADD CONSTRAINT poison CHECK"
             " (client_request_id NOT IN ('client-%u', 'client-%u')) NOT VALID",
             from + 5, from + N - 1);
    rig_execute(sql);
}

static void cure(void)
{
    rig_execute("ALTER TABLE usage_events DROP CONSTRAINT poison");
}

/* A journal whose rows all wait, so that they come in one batch. */
static void record(const char *dir, unsigned from)
{
    struct billing *b = rig_open_billing(dir, "host=/nowhere connect_timeout=1");

    rig_run_requests(b, from, from + N);
    billing_close(b, 0);
}

/* Opens what is in `dir` until all of it is settled. */
static struct billing_stats post(const char *dir)
{
    struct billing *b = rig_open_billing(dir, rig.server.conninfo);
    struct billing_stats stats;

    rig_wait_for(rig_is_ready, b);
    rig_wait_for(rig_is_posted, b);
    billing_stats(b, &stats);
    billing_close(b, 1000);
    return stats;
}

static void a_poisoned_row_stops_no_other_and_is_posted_once_cured(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct billing_stats stats;

    (void)state;
    temp_dir_make(dir);
    record(dir, 7000);
    poison(7000);
    stats = post(dir);
    assert_int_equal(stats.posted, N - 2);
    assert_int_equal(stats.set_aside, 2);
    assert_int_equal(rig_rows_of(7000, 7000 + N), N - 2);
    assert_int_equal(dead_letters(), 2);
    retry(0, 2);
    assert_int_equal(rig_number("SELECT sum(tries) FROM usage_dead_letters"), 4);
    cure();
    retry(2, 0);
    assert_int_equal(rig_rows_of(7000, 7000 + N), N);
    assert_int_equal(dead_letters(), 0);
    retry(0, 0);
    assert_int_equal(rig_rows_of(7000, 7000 + N), N);
    temp_dir_remove(dir);
}

/* A gateway that dies before its journal says "posted" sends everything again. */
static void a_replay_doubles_neither_rows_nor_dead_letters(void **state)
{
    char dir[TEMP_DIR_BYTES];
    size_t len;
    char *data;

    (void)state;
    temp_dir_make(dir);
    record(dir, 7100);
    data = segment_get(dir, 1, &len);
    poison(7100);
    for (int i = 0; i < 2; i++) {
        post(dir);
        assert_int_equal(dead_letters(), 2);
        temp_dir_clear(dir);
        segment_put(dir, 1, data, len);
    }
    cure();
    post(dir); /* before the retry: the rows come from the journal */
    assert_int_equal(rig_rows_of(7100, 7100 + N), N);
    retry(2, 0);
    assert_int_equal(rig_rows_of(7100, 7100 + N), N);
    assert_int_equal(dead_letters(), 0);
    free(data);
    temp_dir_remove(dir);
}

static void a_dead_letter_shows_its_request_its_reason_and_its_bytes(void **state)
{
    char dir[TEMP_DIR_BYTES], text[8192], id[ID_HEX_BYTES];
    struct id poisoned = sample_id(7205);
    FILE *f = tmpfile();
    json_t *letter = NULL, *row = NULL;
    int64_t n = 0;
    ssize_t len;

    (void)state;
    assert_non_null(f);
    temp_dir_make(dir);
    record(dir, 7200);
    poison(7200);
    post(dir);
    assert_int_equal(dead_letters_write(rig.pg, fileno(f), &n, &why), ST_OK);
    assert_int_equal(n, 2);
    len = pread(fileno(f), text, sizeof text - 1, 0);
    fclose(f);
    assert_true(len > 0);
    text[len] = '\0';
    *strchr(text, '\n') = '\0';
    assert_int_equal(json_parse(text, strlen(text), 2, &letter, &why), ST_OK);
    id_to_hex(&poisoned, id);
    assert_string_equal(json_string_value(json_object_get(letter, "request_id")), id);
    assert_non_null(strstr(json_string_value(json_object_get(letter, "reason")), "poison"));
    assert_int_equal(json_integer_value(json_object_get(letter, "tries")), 1);
    snprintf(text, sizeof text, "%s", json_string_value(json_object_get(letter, "row")));
    assert_int_equal(json_parse(text, strlen(text), 2, &row, &why), ST_OK);
    assert_int_equal(json_integer_value(json_object_get(row, "output_tokens")), 7205);
    json_decref(row);
    json_decref(letter);
    cure();
    retry(2, 0);
    temp_dir_remove(dir);
}

static bool is_not_posting(void *arg)
{
    struct billing_stats s;

    billing_stats(arg, &s);
    return !s.postgres_ok;
}

/* Nothing that a row could help sets rows aside: they wait. */
static void a_fault_of_the_schema_is_no_row_s(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    record(dir, 7300);
    rig_execute("ALTER TABLE usage_events RENAME TO usage_events_away");
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_wait_for(is_not_posting, b);
    assert_int_equal(dead_letters(), 0);
    rig_execute("ALTER TABLE usage_events_away RENAME TO usage_events");
    rig_wait_for(rig_is_posted, b);
    assert_int_equal(rig_rows_of(7300, 7300 + N), N);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

/* Where not even a dead letter can be written, everything waits in the journal as before. */
static void a_row_that_can_be_put_nowhere_waits(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    record(dir, 7400);
    poison(7400);
    rig_execute("ALTER TABLE usage_dead_letters RENAME TO dead_letters_away");
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_wait_for(is_not_posting, b);
    billing_close(b, 0);
    rig_execute("ALTER TABLE dead_letters_away RENAME TO usage_dead_letters");
    post(dir);
    assert_int_equal(rig_rows_of(7400, 7400 + N), N - 2);
    cure();
    retry(2, 0);
    assert_int_equal(rig_rows_of(7400, 7400 + N), N);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_poisoned_row_stops_no_other_and_is_posted_once_cured),
        cmocka_unit_test(a_replay_doubles_neither_rows_nor_dead_letters),
        cmocka_unit_test(a_dead_letter_shows_its_request_its_reason_and_its_bytes),
        cmocka_unit_test(a_fault_of_the_schema_is_no_row_s),
        cmocka_unit_test(a_row_that_can_be_put_nowhere_waits),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
