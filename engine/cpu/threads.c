#include "engine/cpu/threads.h"

#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A pause is 40 to 140 cycles on current machines: 50 to 100 microseconds in all, longer than any
 * serial part between two parallel ones of a step, far shorter than a scheduler's tick. */
#define SPIN_ROUNDS 2000

struct pool_thread {
    struct pool *pool;
    unsigned index;
    pthread_t handle;
};

struct pool {
    unsigned n_threads;
    unsigned n_started; /* helpers that run, besides the caller */

    /* The job: written before `generation` moves, read after it moved. */
    void (*fn)(void *arg, uint32_t item, unsigned thread);
    void *arg;
    uint32_t n_items;
    bool stop;

    _Alignas(64) _Atomic uint32_t generation; /* futex of sleeping helpers */
    _Atomic uint32_t n_asleep;
    _Alignas(64) _Atomic uint32_t next_item;
    _Alignas(64) _Atomic uint32_t n_busy; /* helpers not done; futex of the sleeping caller */
    _Atomic uint32_t caller_asleep;

    struct pool_thread threads[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    /* Woken, interrupted or changed already: the caller looks again in each case. */
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void take_items(struct pool *p, unsigned thread)
{
    for (;;) {
        uint32_t item = atomic_fetch_add_explicit(&p->next_item, 1, memory_order_relaxed);

        if (item >= p->n_items)
            return;
        p->fn(p->arg, item, thread);
    }
}

static uint32_t wait_for_generation(struct pool *p, uint32_t seen)
{
    uint32_t now;

    for (int i = 0; i < SPIN_ROUNDS; i++) {
        now = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (now != seen)
            return now;
        _mm_pause();
    }
    atomic_fetch_add(&p->n_asleep, 1);
    while ((now = atomic_load(&p->generation)) == seen)
        futex_wait(&p->generation, seen);
    atomic_fetch_sub(&p->n_asleep, 1);
    return now;
}

static void *helper_main(void *arg)
{
    struct pool_thread *t = arg;
    struct pool *p = t->pool;
    uint32_t generation = 0;

    for (;;) {
        generation = wait_for_generation(p, generation);
        if (p->stop)
            return NULL;
        take_items(p, t->index);
        if (atomic_fetch_sub(&p->n_busy, 1) == 1 && atomic_load(&p->caller_asleep))
            futex_wake_all(&p->n_busy);
    }
}

static void wait_for_helpers(struct pool *p)
{
    uint32_t busy;

    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&p->n_busy, memory_order_acquire) == 0)
            return;
        _mm_pause();
    }
    atomic_store(&p->caller_asleep, 1);
    while ((busy = atomic_load(&p->n_busy)) != 0)
        futex_wait(&p->n_busy, busy);
    atomic_store(&p->caller_asleep, 0);
}

static void announce(struct pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->n_asleep) != 0)
        futex_wake_all(&p->generation);
}

void pool_run(struct pool *p, void (*fn)(void *arg, uint32_t item, unsigned thread), void *arg,
              uint32_t n_items)
{
    if (n_items <= 1 || p->n_started == 0) {
        for (uint32_t i = 0; i < n_items; i++)
            fn(arg, i, 0);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->n_items = n_items;
    atomic_store_explicit(&p->next_item, 0, memory_order_relaxed);
    atomic_store_explicit(&p->n_busy, p->n_started, memory_order_relaxed);
    announce(p);
    take_items(p, 0);
    wait_for_helpers(p);
}

/* Helpers take no signals: those belong to the process's main thread. */
static bool start_helper(struct pool *p, unsigned index)
{
    struct pool_thread *t = &p->threads[index];
    sigset_t all, old;
    int rc;

    t->pool = p;
    t->index = index;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&t->handle, NULL, helper_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc == 0;
}

unsigned pool_default_threads(void)
{
    cpu_set_t set;
    int n = 1;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    if (n > POOL_THREADS_MAX)
        n = POOL_THREADS_MAX;
    return n > 2 ? (unsigned)n - 1 : (unsigned)n;
}

enum status pool_open(unsigned n_threads, struct pool **out, struct reason *why)
{
    struct pool *p;
    size_t bytes;

    if (n_threads == 0 || n_threads > POOL_THREADS_MAX)
        return fail(why, ST_INVALID, "%u compute threads: 1 to %d are possible", n_threads,
                    POOL_THREADS_MAX);
    bytes = sizeof *p + n_threads * sizeof p->threads[0];
    bytes = (bytes + 63) & ~(size_t)63;
    p = aligned_alloc(64, bytes);
    if (p == NULL)
        return fail(why, ST_NO_MEMORY, "no memory for the compute threads");
    memset(p, 0, bytes);
    p->n_threads = n_threads;
    while (p->n_started + 1 < n_threads) {
        if (!start_helper(p, p->n_started + 1)) {
            pool_close(p);
            return fail(why, ST_NO_MEMORY, "can't start %u compute threads", n_threads);
        }
        p->n_started++;
    }
    *out = p;
    return ST_OK;
}

void pool_close(struct pool *p)
{
    if (p == NULL)
        return;
    p->stop = true;
    announce(p);
    for (unsigned i = 1; i <= p->n_started; i++)
        pthread_join(p->threads[i].handle, NULL);
    free(p);
}

unsigned pool_n_threads(const struct pool *p)
{
    return p->n_threads;
}
