#include "engine/backend/job_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_a_number_finds_its_job_until_it_is_removed(void **state)
{
    struct job_table t;
    int jobs[200];
    uint64_t numbers[200];
    uint32_t at = 0, n = 0;

    (void)state;
    job_table_init(&t);
    for (int i = 0; i < 200; i++)
        assert_int_equal(job_table_add(&t, &jobs[i], &numbers[i]), ST_OK);
    for (int i = 0; i < 200; i++)
        assert_ptr_equal(job_table_find(&t, numbers[i]), &jobs[i]);
    while (job_table_next(&t, &at) != NULL)
        n++;
    assert_int_equal(n, 200);
    for (int i = 0; i < 200; i++)
        job_table_remove(&t, numbers[i]);
    assert_null(job_table_find(&t, numbers[0]));
    job_table_dispose(&t);
}

static void test_a_number_of_the_past_finds_nothing(void **state)
{
    uint64_t first, second;
    struct job_table t;
    int a, b;

    (void)state;
    job_table_init(&t);
    assert_int_equal(job_table_add(&t, &a, &first), ST_OK);
    job_table_remove(&t, first);
    assert_int_equal(job_table_add(&t, &b, &second), ST_OK);
    assert_true(first != second);
    assert_null(job_table_find(&t, first));
    assert_null(job_table_find(&t, ~0ull));
    job_table_remove(&t, second);
    job_table_dispose(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_number_finds_its_job_until_it_is_removed),
        cmocka_unit_test(test_a_number_of_the_past_finds_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
