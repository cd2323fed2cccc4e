/* What a supervisor writes for others, and what of it they believe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/supervise/files.h"
#include "app/supervise/state_file.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static char engine_socket[64], path[PROCESS_PATH_MAX];

static void what_was_written_is_read(void **state)
{
    struct last_lines said = {0};
    struct state_file s;

    (void)state;
    last_lines_add(&said, "first", 5);
    last_lines_add(&said, "second\x1b", 7);
    state_file_write(path, "stopped", 5, "exit 1: no model", &said);
    assert_true(state_file_read(engine_socket, &s));
    assert_int_equal(s.supervisor, getpid());
    assert_string_equal(s.state, "stopped");
    assert_int_equal(s.deaths, 5);
    assert_string_equal(s.reason, "exit 1: no model");
    assert_int_equal(s.log.n, 2);
    assert_string_equal(s.log.text[0], "first");
    assert_string_equal(s.log.text[1], "second?");
}

static void a_reason_of_any_bytes_is_printable_and_cut(void **state)
{
    char reason[2000];
    struct state_file s;

    (void)state;
    memset(reason, 0x1B, sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    state_file_write(path, "waiting", 1, reason, NULL);
    assert_true(state_file_read(engine_socket, &s));
    assert_int_equal(strlen(s.reason), 500);
    assert_int_equal(strspn(s.reason, "?"), 500);
}

static void nobody_is_believed_who_lives_no_more(void **state)
{
    char text[128];
    struct state_file s = {.deaths = 7};

    (void)state;
    snprintf(text, sizeof text, "supervisor %d 1\nstate running\n", (int)getpid());
    assert_int_equal(file_write(path, text, strlen(text), 0600, NULL), ST_OK);
    assert_false(state_file_read(engine_socket, &s));
    assert_int_equal(file_write(path, "state running\n", 14, 0600, NULL), ST_OK);
    assert_false(state_file_read(engine_socket, &s));
    assert_int_equal(unlink(path), 0);
    assert_false(state_file_read(engine_socket, &s));
    assert_int_equal(s.deaths, 7);
}

static int make_folder(void **state)
{
    if (test_folder_make(state) != 0)
        return -1;
    snprintf(engine_socket, sizeof engine_socket, "%s", in_test_folder("engine.sock"));
    state_file_path(engine_socket, path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(a_reason_of_any_bytes_is_printable_and_cut),
        cmocka_unit_test(nobody_is_believed_who_lives_no_more),
    };

    return cmocka_run_group_tests(tests, make_folder, test_folder_remove_empty);
}
