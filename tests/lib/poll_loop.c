#include "tests/lib/poll_loop.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"

struct loop_watch {
    struct poll_loop *loop;
    int fd; /* -1: unwatched in this turn, freed at its end */
    int events;
    void (*on_ready)(void *arg, int events);
    void *arg;
};

struct poll_loop {
    struct loop super;
    int64_t now_ms, skipped_ms;
    struct loop_watch **watches;
    struct pollfd *fds; /* n_watches + 1: the last is the wake-up */
    size_t n_watches, cap;
    struct loop_timer timers; /* ring, unordered: tests have few */
    int wake_fd;
    pthread_mutex_t lock;
    struct loop_message *inbox, **inbox_tail; /* under lock */
};

static struct poll_loop *self(struct loop *l)
{
    return CONTAINER_OF(l, struct poll_loop, super);
}

static int64_t now_ms(struct loop *l)
{
    return self(l)->now_ms;
}

static void grow(struct poll_loop *p)
{
    if (p->n_watches < p->cap)
        return;
    p->cap = p->cap == 0 ? 16 : p->cap * 2;
    p->watches = realloc(p->watches, p->cap * sizeof p->watches[0]);
    p->fds = realloc(p->fds, (p->cap + 1) * sizeof p->fds[0]);
    assert(p->watches != NULL && p->fds != NULL);
}

static enum status watch(struct loop *l, int fd, void (*on_ready)(void *arg, int events), void *arg,
                         struct loop_watch **out)
{
    struct poll_loop *p = self(l);
    struct loop_watch *w = calloc(1, sizeof *w);

    assert(w != NULL);
    *w = (struct loop_watch){.loop = p, .fd = fd, .on_ready = on_ready, .arg = arg};
    grow(p);
    p->watches[p->n_watches++] = w;
    *out = w;
    return ST_OK;
}

static void interest(struct loop_watch *w, int events)
{
    w->events = events;
}

static void unwatch(struct loop_watch *w)
{
    w->fd = -1;
}

static void timer_stop(struct loop *l, struct loop_timer *t)
{
    (void)l;
    if (!t->armed)
        return;
    t->prev->next = t->next;
    t->next->prev = t->prev;
    t->armed = false;
}

static void timer_start(struct loop *l, struct loop_timer *t, int64_t delay_ms)
{
    struct poll_loop *p = self(l);

    timer_stop(l, t);
    t->armed = true;
    t->due_ms = p->now_ms + (delay_ms > 0 ? delay_ms : 0);
    t->prev = p->timers.prev;
    t->next = &p->timers;
    t->prev->next = t->next->prev = t;
}

static void post(struct loop *l, struct loop_message *m)
{
    struct poll_loop *p = self(l);
    uint64_t one = 1;
    bool was_empty;

    m->next = NULL;
    pthread_mutex_lock(&p->lock);
    was_empty = p->inbox == NULL;
    *p->inbox_tail = m;
    p->inbox_tail = &m->next;
    pthread_mutex_unlock(&p->lock);
    if (was_empty) {
        ssize_t n = write(p->wake_fd, &one, sizeof one);

        assert(n == (ssize_t)sizeof one);
    }
}

static const struct loop_ops poll_loop_ops = {.now_ms = now_ms,
                                              .watch = watch,
                                              .interest = interest,
                                              .unwatch = unwatch,
                                              .timer_start = timer_start,
                                              .timer_stop = timer_stop,
                                              .post = post};

struct loop *poll_loop_new(void)
{
    struct poll_loop *p = calloc(1, sizeof *p);

    assert(p != NULL);
    p->super.ops = &poll_loop_ops;
    p->now_ms = clock_mono_ms();
    p->timers.prev = p->timers.next = &p->timers;
    p->inbox_tail = &p->inbox;
    p->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert(p->wake_fd != -1);
    pthread_mutex_init(&p->lock, NULL);
    grow(p);
    return &p->super;
}

/* Frees what was unwatched; never while the list is being walked. */
static void sweep(struct poll_loop *p)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->n_watches; i++) {
        if (p->watches[i]->fd == -1)
            free(p->watches[i]);
        else
            p->watches[kept++] = p->watches[i];
    }
    p->n_watches = kept;
}

void poll_loop_free(struct loop *l)
{
    struct poll_loop *p = self(l);

    sweep(p);
    assert(p->n_watches == 0 && p->timers.next == &p->timers);
    close(p->wake_fd);
    pthread_mutex_destroy(&p->lock);
    free(p->watches);
    free(p->fds);
    free(p);
}

static void run_messages(struct poll_loop *p)
{
    struct loop_message *m, *next;
    uint64_t count;
    ssize_t n = read(p->wake_fd, &count, sizeof count);

    (void)n; /* EAGAIN: no wake-up was pending */
    pthread_mutex_lock(&p->lock);
    m = p->inbox;
    p->inbox = NULL;
    p->inbox_tail = &p->inbox;
    pthread_mutex_unlock(&p->lock);
    for (; m != NULL; m = next) {
        next = m->next;
        m->on_message(m);
    }
}

static struct loop_timer *earliest(struct poll_loop *p)
{
    struct loop_timer *best = NULL;

    for (struct loop_timer *t = p->timers.next; t != &p->timers; t = t->next)
        if (best == NULL || t->due_ms < best->due_ms)
            best = t;
    return best;
}

/* A timer that rearms itself with no delay is due in the next turn, not in this one. */
static void run_timers(struct poll_loop *p)
{
    struct loop_timer due = {.prev = &due, .next = &due}, *t, *next;

    for (t = p->timers.next; t != &p->timers; t = next) {
        next = t->next;
        if (t->due_ms > p->now_ms)
            continue;
        timer_stop(&p->super, t);
        t->armed = true; /* stays in a ring: another callback may stop it */
        t->prev = due.prev;
        t->next = &due;
        t->prev->next = t->next->prev = t;
    }
    while ((t = due.next) != &due) {
        timer_stop(&p->super, t);
        t->on_timer(t->arg);
    }
}

static int wait_ms(struct poll_loop *p, int64_t max_wait_ms)
{
    struct loop_timer *t = earliest(p);
    int64_t wait = max_wait_ms;

    if (t != NULL) {
        int64_t until = t->due_ms > p->now_ms ? t->due_ms - p->now_ms : 0;

        wait = wait < 0 || until < wait ? until : wait;
    }
    return (int)(wait > 60000 ? 60000 : wait);
}

static int loop_events(short revents)
{
    int events = 0;

    if (revents & (POLLIN | POLLERR | POLLHUP))
        events |= LOOP_READ;
    if (revents & (POLLOUT | POLLERR | POLLHUP))
        events |= LOOP_WRITE;
    return events;
}

static void run_watches(struct poll_loop *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct loop_watch *w = p->watches[i];
        int events = loop_events(p->fds[i].revents);

        if (w->fd != -1 && w->events != 0 && events != 0)
            w->on_ready(w->arg, events);
    }
}

void poll_loop_turn(struct loop *l, int64_t max_wait_ms)
{
    struct poll_loop *p = self(l);
    size_t n;

    sweep(p);
    n = p->n_watches;
    for (size_t i = 0; i < n; i++) {
        struct loop_watch *w = p->watches[i];
        short events =
            (short)((w->events & LOOP_READ ? POLLIN : 0) | (w->events & LOOP_WRITE ? POLLOUT : 0));

        /* poll would report a hang-up for ever to one who is not interested. */
        p->fds[i] = (struct pollfd){.fd = events != 0 ? w->fd : -1, .events = events};
    }
    p->fds[n] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
    if (poll(p->fds, n + 1, wait_ms(p, max_wait_ms)) == -1)
        assert(errno == EINTR);
    p->now_ms = clock_mono_ms() + p->skipped_ms;
    run_messages(p);
    run_timers(p);
    run_watches(p, n);
    sweep(p);
}

bool poll_loop_run_until(struct loop *l, bool (*done)(void *arg), void *arg, int64_t timeout_ms)
{
    int64_t deadline = clock_mono_ms() + timeout_ms, left;

    while (!done(arg)) {
        left = deadline - clock_mono_ms();
        if (left <= 0)
            return false;
        poll_loop_turn(l, left);
    }
    return true;
}

void poll_loop_skip(struct loop *l, int64_t ms)
{
    self(l)->skipped_ms += ms;
}
