#include "engine/cpu/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ITEMS 1000u

struct counts {
    _Atomic uint32_t done[ITEMS];
    _Atomic uint32_t wrong_thread;
    unsigned n_threads;
};

static void count(void *arg, uint32_t item, unsigned thread)
{
    struct counts *c = arg;

    atomic_fetch_add(&c->done[item], 1);
    if (thread >= c->n_threads)
        atomic_fetch_add(&c->wrong_thread, 1);
}

static void test_every_item_runs_once(void **state)
{
    static const uint32_t sizes[] = {0, 1, 2, 3, 7, 64, ITEMS};
    static struct counts c;
    struct pool *p;

    (void)state;
    for (unsigned n = 1; n <= 5; n++) {
        assert_int_equal(pool_open(n, &p, NULL), ST_OK);
        assert_int_equal(pool_n_threads(p), n);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            memset(&c, 0, sizeof c);
            c.n_threads = n;
            pool_run(p, count, &c, sizes[i]);
            for (uint32_t k = 0; k < ITEMS; k++)
                assert_int_equal(c.done[k], k < sizes[i]);
            assert_int_equal(c.wrong_thread, 0);
        }
        pool_close(p);
    }
}

/* Jobs that follow each other closely: a helper late from one must not take items of the next. */
static void test_jobs_do_not_mix(void **state)
{
    static struct counts c[2];
    struct pool *p;

    (void)state;
    assert_int_equal(pool_open(3, &p, NULL), ST_OK);
    memset(c, 0, sizeof c);
    c[0].n_threads = c[1].n_threads = 3;
    for (int i = 0; i < 2000; i++)
        pool_run(p, count, &c[i % 2], 4);
    for (uint32_t k = 0; k < 4; k++) {
        assert_int_equal(c[0].done[k], 1000);
        assert_int_equal(c[1].done[k], 1000);
    }
    pool_close(p);
}

static void test_impossible_numbers_are_refused(void **state)
{
    struct pool *p = NULL;
    struct reason why;

    (void)state;
    assert_int_equal(pool_open(0, &p, &why), ST_INVALID);
    assert_int_equal(pool_open(POOL_THREADS_MAX + 1, &p, &why), ST_INVALID);
    assert_null(p);
    pool_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_item_runs_once),
        cmocka_unit_test(test_jobs_do_not_mix),
        cmocka_unit_test(test_impossible_numbers_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
