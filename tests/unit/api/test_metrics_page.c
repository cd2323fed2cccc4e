/* What threads share of /metrics: histograms that one writes while others read, and the prepared
 * page. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "api/metrics.h"
#include "api/metrics_page.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* ---- histograms ---- */

#define BURSTS       100
#define BURST_WRITES 200

struct shared {
    struct histogram h;
    _Atomic uint32_t reads;
};

/* Waits for a read after every burst: a reader needs a moment without writes, which a server's
 * thread always leaves. */
static void *write_bursts(void *arg)
{
    struct shared *s = arg;

    for (int i = 0; i < BURSTS; i++) {
        uint32_t reads = atomic_load(&s->reads);

        for (int k = 0; k < BURST_WRITES; k++)
            histogram_observe(&s->h, &metric_scales[SCALE_FIRST_TOKEN], 3, 1);
        while (atomic_load(&s->reads) == reads)
            sched_yield();
    }
    return NULL;
}

static void test_sum_and_count_are_of_one_moment(void **state)
{
    struct shared s = {0};
    uint64_t count = 0;
    size_t n_torn = 0, n_back = 0;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, write_bursts, &s), 0);
    while (count < BURSTS * BURST_WRITES) {
        struct histogram_sum sum = {0};

        histogram_add(&s.h, &sum);
        n_back += sum.buckets[0] < count;
        n_torn += sum.sum != 3 * sum.buckets[0];
        count = sum.buckets[0];
        atomic_fetch_add(&s.reads, 1);
    }
    pthread_join(thread, NULL);
    assert_int_equal(n_torn, 0);
    assert_int_equal(n_back, 0);
}

/* ---- the prepared page ---- */

static void on_build(struct buf *b, void *arg)
{
    int *n = arg;

    buf_printf(b, "%d\n", ++*n);
}

static void test_the_page_is_built_once_for_all_who_ask_in_its_time(void **state)
{
    struct metrics_page p;
    struct buf out;
    int n = 0;

    (void)state;
    metrics_page_init(&p, on_build, &n);
    buf_init(&out);
    metrics_page_get(&p, 1000, &out);
    metrics_page_get(&p, 1000 + METRICS_PAGE_MS - 1, &out);
    metrics_page_get(&p, 999, &out); /* whose clock was read earlier */
    metrics_page_get(&p, 1000 + METRICS_PAGE_MS, &out);
    assert_string_equal(buf_cstr(&out), "1\n1\n1\n2\n");
    buf_dispose(&out);
    metrics_page_dispose(&p);
}

static void on_fail(struct buf *b, void *arg)
{
    int *n = arg;

    buf_puts(b, "part");
    b->failed = ++*n == 1;
}

static void test_a_page_that_failed_is_not_served_and_built_again(void **state)
{
    struct metrics_page p;
    struct buf out;
    int n = 0;

    (void)state;
    metrics_page_init(&p, on_fail, &n);
    buf_init(&out);
    metrics_page_get(&p, 1000, &out);
    assert_true(out.failed);
    buf_clear(&out);
    metrics_page_get(&p, 1001, &out);
    assert_string_equal(buf_cstr(&out), "part");
    buf_dispose(&out);
    metrics_page_dispose(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_and_count_are_of_one_moment),
        cmocka_unit_test(test_the_page_is_built_once_for_all_who_ask_in_its_time),
        cmocka_unit_test(test_a_page_that_failed_is_not_served_and_built_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
