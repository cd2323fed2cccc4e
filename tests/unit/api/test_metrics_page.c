/* What threads share of /metrics: histograms that one writes while others read, and the prepared
 * page. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/metrics.h"
#include "api/metrics_page.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* ---- histograms ---- */

#define BURSTS 2000
/* Each changes the turn twice: two bursts are fewer changes than histogram.c has tries. */
#define BURST_WRITES 4

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

/* As test_sum_and_count above, of a writer that lost its processor after its first store. */
static void test_a_writer_that_stands_still_holds_up_no_reader(void **state)
{
    struct histogram h = {0};
    struct histogram_sum sum = {0};

    (void)state;
    for (int i = 0; i < 5; i++)
        histogram_observe(&h, &metric_scales[SCALE_FIRST_TOKEN], 3, 1);
    atomic_fetch_add(&h.turn, 1);
    atomic_store(&h.copies[0].buckets[0], 6);
    histogram_add(&h, &sum);
    assert_int_equal(sum.buckets[0], 5);
    assert_int_equal(sum.sum, 15);
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

struct slow_build {
    struct metrics_page page;
    sem_t begun, go_on;
    int n;
};

/* From the second time on it takes as long as the test says. */
static void on_slow_build(struct buf *b, void *arg)
{
    struct slow_build *s = arg;

    if (++s->n > 1) {
        sem_post(&s->begun);
        sem_wait(&s->go_on);
    }
    buf_printf(b, "%d\n", s->n);
}

static void *scrape(void *arg)
{
    struct slow_build *s = arg;
    struct buf out;

    buf_init(&out);
    metrics_page_get(&s->page, 2000, &out);
    assert_string_equal(buf_cstr(&out), "2\n");
    buf_dispose(&out);
    return NULL;
}

/* One thread is at a new page: the other goes on with the last one at once. */
static void test_nobody_waits_for_a_page_that_another_builds(void **state)
{
    struct slow_build s = {.n = 0};
    struct buf out;
    pthread_t thread;

    (void)state;
    sem_init(&s.begun, 0, 0);
    sem_init(&s.go_on, 0, 0);
    metrics_page_init(&s.page, on_slow_build, &s);
    buf_init(&out);
    metrics_page_get(&s.page, 1000, &out);
    assert_int_equal(pthread_create(&thread, NULL, scrape, &s), 0);
    sem_wait(&s.begun);
    for (int i = 0; i < 100; i++)
        metrics_page_get(&s.page, 2000 + i, &out);
    sem_post(&s.go_on);
    pthread_join(thread, NULL);
    assert_int_equal(out.len, 101 * 2);
    assert_null(strchr(buf_cstr(&out), '2'));
    assert_int_equal(s.n, 2);
    buf_dispose(&out);
    metrics_page_dispose(&s.page);
    sem_destroy(&s.begun);
    sem_destroy(&s.go_on);
}

#define SCRAPES 20000

struct scraper {
    struct metrics_page *page;
    size_t n_bad;
};

static void *scrape_often(void *arg)
{
    struct scraper *s = arg;
    struct buf out;
    int last = 0;

    buf_init(&out);
    for (int64_t i = 0; i < SCRAPES; i++) {
        int n;

        buf_clear(&out);
        metrics_page_get(s->page, i * METRICS_PAGE_MS, &out);
        n = atoi(buf_cstr(&out));
        s->n_bad += out.failed || n < last || strchr(buf_cstr(&out), '\n') == NULL;
        last = n;
    }
    buf_dispose(&out);
    return NULL;
}

/* Each page is whole, and no later one is older. */
static void test_two_threads_scrape_at_once(void **state)
{
    struct metrics_page p;
    struct scraper s[2] = {{&p, 0}, {&p, 0}};
    pthread_t threads[2];
    struct buf out;
    int n = 0;

    (void)state;
    metrics_page_init(&p, on_build, &n);
    buf_init(&out);
    metrics_page_get(&p, -METRICS_PAGE_MS, &out);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, scrape_often, &s[i]), 0);
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(s[0].n_bad + s[1].n_bad, 0);
    assert_true(n <= SCRAPES + 1);
    buf_dispose(&out);
    metrics_page_dispose(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_and_count_are_of_one_moment),
        cmocka_unit_test(test_a_writer_that_stands_still_holds_up_no_reader),
        cmocka_unit_test(test_nobody_waits_for_a_page_that_another_builds),
        cmocka_unit_test(test_two_threads_scrape_at_once),
        cmocka_unit_test(test_the_page_is_built_once_for_all_who_ask_in_its_time),
        cmocka_unit_test(test_a_page_that_failed_is_not_served_and_built_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
