/* A pool of threads behind a queue: order, bounds, and that nothing queued is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/size.h"
#include "base/worker.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* A thread waits in on_run until the test opens it. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    int waiting;
};
static struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void gate_set(bool open)
{
    pthread_mutex_lock(&gate.lock);
    gate.open = open;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void gate_pass(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.waiting++;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.waiting--;
    pthread_mutex_unlock(&gate.lock);
}

static void gate_await(int waiting)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting != waiting)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

struct job {
    struct work work;
    void *ran_with; /* the thread's state */
    int place;      /* in the order of runs, from 1; 0: never ran */
    int runs;
};
static atomic_int n_ran;

static void note_run(struct work *w, void *thread_state)
{
    struct job *j = CONTAINER_OF(w, struct job, work);

    j->ran_with = thread_state;
    j->place = atomic_fetch_add(&n_ran, 1) + 1;
    j->runs++;
}

static void run_at_the_gate(struct work *w, void *thread_state)
{
    gate_pass();
    note_run(w, thread_state);
}

static struct worker *started(const struct worker_config *cfg)
{
    struct worker *w = NULL;

    atomic_store(&n_ran, 0);
    gate_set(false);
    assert_int_equal(worker_start(cfg, &w), ST_OK);
    return w;
}

static void test_work_runs_in_the_order_of_its_coming(void **state)
{
    const struct worker_config cfg = {.name = "order", .n_threads = 1, .capacity = 100};
    struct worker *w = started(&cfg);
    struct job jobs[100] = {0};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(jobs); i++) {
        jobs[i].work.on_run = note_run;
        assert_int_equal(worker_submit(w, &jobs[i].work), ST_OK);
    }
    worker_stop(w);
    for (size_t i = 0; i < COUNT_OF(jobs); i++)
        assert_int_equal(jobs[i].place, i + 1);
}

static void test_a_full_queue_refuses_until_there_is_room(void **state)
{
    const struct worker_config cfg = {.name = "full", .n_threads = 1, .capacity = 2};
    struct worker *w = started(&cfg);
    struct job running = {.work.on_run = run_at_the_gate}, queued[3] = {0};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(queued); i++)
        queued[i].work.on_run = run_at_the_gate;
    assert_int_equal(worker_submit(w, &running.work), ST_OK);
    gate_await(1);
    /* What runs takes no place in the queue. */
    assert_int_equal(worker_submit(w, &queued[0].work), ST_OK);
    assert_int_equal(worker_submit(w, &queued[1].work), ST_OK);
    assert_int_equal(worker_submit(w, &queued[2].work), ST_OVERLOADED);
    gate_set(true);
    worker_stop(w);
    assert_int_equal(running.place, 1);
    assert_int_equal(queued[1].place, 3);
    /* What was refused is never run. */
    assert_int_equal(queued[2].runs, 0);
}

static void test_stopping_runs_what_is_queued(void **state)
{
    const struct worker_config cfg = {.name = "stop", .n_threads = 2, .capacity = 50};
    struct worker *w = started(&cfg);
    struct job jobs[50] = {0};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(jobs); i++) {
        jobs[i].work.on_run = run_at_the_gate;
        assert_int_equal(worker_submit(w, &jobs[i].work), ST_OK);
    }
    gate_await(2);
    gate_set(true);
    worker_stop(w);
    for (size_t i = 0; i < COUNT_OF(jobs); i++)
        assert_int_equal(jobs[i].runs, 1);
}

static void test_threads_run_beside_one_another(void **state)
{
    const struct worker_config cfg = {.name = "beside", .n_threads = 3, .capacity = 3};
    struct worker *w = started(&cfg);
    struct job jobs[3] = {0};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(jobs); i++) {
        jobs[i].work.on_run = run_at_the_gate;
        assert_int_equal(worker_submit(w, &jobs[i].work), ST_OK);
    }
    /* All three are inside on_run at once. */
    gate_await(3);
    gate_set(true);
    worker_stop(w);
}

static atomic_int n_made, n_gone;

static void *make_state(void *arg)
{
    int *states = arg;

    return &states[atomic_fetch_add(&n_made, 1)];
}

static void drop_state(void *thread_state)
{
    (*(int *)thread_state)++;
    atomic_fetch_add(&n_gone, 1);
}

static void test_every_thread_has_a_state_of_its_own(void **state)
{
    int states[2] = {0};
    const struct worker_config cfg = {.name = "state",
                                      .n_threads = 2,
                                      .capacity = 2,
                                      .thread_init = make_state,
                                      .thread_dispose = drop_state,
                                      .arg = states};
    struct worker *w = started(&cfg);
    struct job jobs[2] = {0};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(jobs); i++) {
        jobs[i].work.on_run = run_at_the_gate;
        assert_int_equal(worker_submit(w, &jobs[i].work), ST_OK);
    }
    gate_await(2);
    gate_set(true);
    worker_stop(w);
    assert_ptr_not_equal(jobs[0].ran_with, jobs[1].ran_with);
    assert_int_equal(atomic_load(&n_made), 2);
    assert_int_equal(atomic_load(&n_gone), 2);
    assert_int_equal(states[0], 1);
    assert_int_equal(states[1], 1);
}

struct poster {
    struct worker *w;
    struct job jobs[200];
    int taken;
};

static void *post_all(void *arg)
{
    struct poster *p = arg;

    for (size_t i = 0; i < COUNT_OF(p->jobs); i++) {
        p->jobs[i].work.on_run = note_run;
        p->taken += worker_submit(p->w, &p->jobs[i].work) == ST_OK;
    }
    return NULL;
}

static void test_what_many_threads_submit_runs_once(void **state)
{
    static struct poster posters[3];
    const struct worker_config cfg = {.name = "many", .n_threads = 2, .capacity = 20};
    struct worker *w = started(&cfg);
    pthread_t threads[COUNT_OF(posters)];
    int taken = 0, runs = 0;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(posters); i++) {
        posters[i] = (struct poster){.w = w};
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, &posters[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(posters); i++)
        pthread_join(threads[i], NULL);
    worker_stop(w);
    for (size_t i = 0; i < COUNT_OF(posters); i++) {
        taken += posters[i].taken;
        for (size_t k = 0; k < COUNT_OF(posters[i].jobs); k++) {
            assert_in_range(posters[i].jobs[k].runs, 0, 1);
            runs += posters[i].jobs[k].runs;
        }
    }
    assert_true(taken > 0);
    assert_int_equal(runs, taken);
}

static void test_no_pool_is_stopped_like_one(void **state)
{
    (void)state;
    worker_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_runs_in_the_order_of_its_coming),
        cmocka_unit_test(test_a_full_queue_refuses_until_there_is_room),
        cmocka_unit_test(test_stopping_runs_what_is_queued),
        cmocka_unit_test(test_threads_run_beside_one_another),
        cmocka_unit_test(test_every_thread_has_a_state_of_its_own),
        cmocka_unit_test(test_what_many_threads_submit_runs_once),
        cmocka_unit_test(test_no_pool_is_stopped_like_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
