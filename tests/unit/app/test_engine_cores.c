/* Which cores the engine takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "app/engine_cores.h"
#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static cpu_set_t cores(unsigned from, unsigned n)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (unsigned i = from; i < from + n; i++)
        CPU_SET(i, &set);
    return set;
}

static void assert_chosen(const char *spec, const cpu_set_t *allowed, const cpu_set_t *expected,
                          bool is_pinned)
{
    struct engine_cores out;
    struct reason why;

    assert_int_equal(engine_cores_choose(spec, allowed, &out, &why), ST_OK);
    assert_true(CPU_EQUAL(&out.set, expected));
    assert_int_equal(out.n, CPU_COUNT(expected));
    assert_int_equal(out.is_pinned, is_pinned);
}

static void auto_leaves_the_first_of_more_than_two(void **state)
{
    cpu_set_t one = cores(3, 1), two = cores(4, 2), eight = cores(4, 8), seven = cores(5, 7);

    (void)state;
    assert_chosen("auto", &one, &one, false);
    assert_chosen("auto", &two, &two, false);
    assert_chosen("auto", &eight, &seven, true);
    assert_chosen("off", &eight, &eight, false);
}

static void a_list_is_taken_as_it_is(void **state)
{
    cpu_set_t eight = cores(0, 8), expected = cores(1, 3);

    (void)state;
    CPU_SET(6, &expected);
    assert_chosen("1-3,6", &eight, &expected, true);
    assert_chosen("6,1-2,2-3", &eight, &expected, true);
    assert_chosen("0-7", &eight, &eight, false);
}

static void bad_lists_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "all",
                                      "1,",
                                      ",1",
                                      "1--2",
                                      "3-1",
                                      "-1",
                                      "1 ",
                                      " 1",
                                      "1-",
                                      "1;2",
                                      "0x1",
                                      "8",
                                      "1-8",
                                      "1024",
                                      "1-1024",
                                      "99999999999999999999",
                                      "+1"};
    cpu_set_t eight = cores(0, 8);

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct engine_cores out;
        struct reason why = {0};

        assert_int_equal(engine_cores_choose(bad[i], &eight, &out, &why), ST_INVALID);
        assert_string_equal(why.param, "engine.cores");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_leaves_the_first_of_more_than_two),
        cmocka_unit_test(a_list_is_taken_as_it_is),
        cmocka_unit_test(bad_lists_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
