/* Every outcome has a name and a text; a reason is cut, never overrun. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/printable.h"
#include "base/size.h"
#include "base/status.h"

/* Last: its macro fail() would meet the declaration of ours, which is meant below. */
#include <cmocka.h>
#undef fail

static void test_every_status_has_a_name_and_a_text_of_its_own(void **state)
{
    (void)state;
    for (int a = 0; a < STATUS_COUNT; a++) {
        assert_true(strlen(status_name((enum status)a)) > 1);
        assert_true(strlen(status_text((enum status)a)) > 1);
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(status_name((enum status)a), status_name((enum status)b));
            assert_string_not_equal(status_text((enum status)a), status_text((enum status)b));
        }
    }
}

static void test_a_number_that_is_no_status_has_a_name_too(void **state)
{
    (void)state;
    assert_string_equal(status_name((enum status)STATUS_COUNT), "?");
    assert_string_equal(status_text((enum status) - 1), "?");
}

static void test_nobody_need_ask_why(void **state)
{
    (void)state;
    assert_int_equal(fail(NULL, ST_TIMEOUT, "after %d ms", 5), ST_TIMEOUT);
    assert_int_equal(fail_param(NULL, ST_INVALID, "n", "is %d", 5), ST_INVALID);
}

static void test_a_reason_names_its_field_or_none(void **state)
{
    struct reason why;

    (void)state;
    assert_int_equal(fail_param(&why, ST_INVALID, "top_p", "is %d", 5), ST_INVALID);
    assert_string_equal(why.param, "top_p");
    assert_string_equal(why.text, "is 5");
    /* A field of an earlier failure doesn't stay. */
    assert_int_equal(fail(&why, ST_CORRUPT, "row %s", "7"), ST_CORRUPT);
    assert_string_equal(why.param, "");
    assert_string_equal(why.text, "row 7");
}

static void test_a_long_reason_is_cut(void **state)
{
    struct {
        struct reason why;
        char guard[8];
    } r;
    char name[200];

    (void)state;
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    memset(r.guard, 'g', sizeof r.guard);
    (void)fail_param(&r.why, ST_INVALID, name, "%s %s %s", name, name, name);
    assert_int_equal(strlen(r.why.param), sizeof r.why.param - 1);
    assert_int_equal(strlen(r.why.text), sizeof r.why.text - 1);
    assert_memory_equal(r.guard, "gggggggg", sizeof r.guard);
}

static void test_a_name_from_outside_steers_no_terminal(void **state)
{
    char out[8];

    (void)state;
    printable("a\x1B[2J\n\x7F", 7, out, sizeof out);
    assert_string_equal(out, "a?[2J??");
    printable("\xC2\x9B\x9B\0z", 5, out, sizeof out);
    assert_string_equal(out, "????z");
    printable("123456789", 9, out, sizeof out);
    assert_string_equal(out, "1234567");
    printable("", 0, out, 1);
    assert_string_equal(out, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_status_has_a_name_and_a_text_of_its_own),
        cmocka_unit_test(test_a_number_that_is_no_status_has_a_name_too),
        cmocka_unit_test(test_nobody_need_ask_why),
        cmocka_unit_test(test_a_reason_names_its_field_or_none),
        cmocka_unit_test(test_a_long_reason_is_cut),
        cmocka_unit_test(test_a_name_from_outside_steers_no_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
