/* What is kept of a log's end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "app/supervise/files.h"
#include "app/supervise/last_lines.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void read_back(const char *text, size_t len, struct last_lines *out)
{
    assert_int_equal(file_write(in_test_folder("log"), text, len, 0600, NULL), ST_OK);
    last_lines_read(out, in_test_folder("log"));
}

static void the_last_that_say_something_stay_in_their_order(void **state)
{
    static const char text[] = "1\n2\n\n3\n4\n   \n5\n6\n7";
    struct last_lines l;

    (void)state;
    read_back(text, sizeof text - 1, &l);
    assert_int_equal(l.n, LAST_LINES);
    for (unsigned i = 0; i < LAST_LINES; i++)
        assert_int_equal(l.text[i][0], '3' + (int)i);
    assert_string_equal(last_lines_newest(&l), "7");
}

static void a_long_line_is_cut_and_one_of_a_long_log_is_found(void **state)
{
    enum { LEN = 100000 };
    char *text = malloc(LEN);
    struct last_lines l;

    (void)state;
    memset(text, 'a', LEN);
    memcpy(text + LEN - 4, "\nend", 4);
    read_back(text, LEN, &l);
    assert_int_equal(l.n, 2);
    assert_int_equal(strlen(l.text[0]), LAST_LINE_BYTES - 1);
    assert_string_equal(last_lines_newest(&l), "end");
    free(text);
}

static void no_log_has_no_line(void **state)
{
    struct last_lines l = {.n = 3};

    (void)state;
    read_back("\n\n", 2, &l);
    assert_int_equal(l.n, 0);
    assert_string_equal(last_lines_newest(&l), "");
    l.n = 3;
    last_lines_read(&l, in_test_folder("none"));
    assert_int_equal(l.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_that_say_something_stay_in_their_order),
        cmocka_unit_test(a_long_line_is_cut_and_one_of_a_long_log_is_found),
        cmocka_unit_test(no_log_has_no_line),
    };

    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
