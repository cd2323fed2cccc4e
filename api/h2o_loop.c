#include "api/h2o_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

struct loop_watch {
    h2o_socket_t *sock; /* over a duplicate: H2O closes what it watches, and ours stays open */
    void (*on_ready)(void *arg, int events);
    void *arg;
    int interest;
    bool write_armed; /* H2O's write notice is one-shot and can't be taken back */
};

static struct h2o_loop *from_loop(struct loop *l)
{
    return CONTAINER_OF(l, struct h2o_loop, super);
}

/* Not cached: H2O waits and runs callbacks in one call, so there is no place to refresh a cache
 * between the two, and reading the monotonic clock costs tens of nanoseconds. */
static int64_t on_now_ms(struct loop *l)
{
    (void)l;
    return clock_mono_ms();
}

static void on_sock_write(h2o_socket_t *sock, const char *err);

static void arm_write(struct loop_watch *w)
{
    if (w->write_armed)
        return;
    w->write_armed = true;
    h2o_socket_notify_write(w->sock, on_sock_write);
}

static void on_sock_read(h2o_socket_t *sock, const char *err)
{
    struct loop_watch *w = sock->data;

    (void)err;
    w->on_ready(w->arg, LOOP_READ);
}

static void on_sock_write(h2o_socket_t *sock, const char *err)
{
    struct loop_watch *w = sock->data;

    (void)err;
    w->write_armed = false;
    if ((w->interest & LOOP_WRITE) == 0)
        return;
    /* Armed again before the call, because the callback may free the watch. */
    arm_write(w);
    w->on_ready(w->arg, LOOP_WRITE);
}

static enum status on_watch(struct loop *l, int fd, void (*on_ready)(void *arg, int events),
                            void *arg, struct loop_watch **out)
{
    struct loop_watch *w = calloc(1, sizeof *w);
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (w == NULL || copy == -1)
        goto out;
    w->sock = h2o_evloop_socket_create(from_loop(l)->evloop, copy, H2O_SOCKET_FLAG_DONT_READ);
    if (w->sock == NULL)
        goto out;
    w->sock->data = w;
    w->on_ready = on_ready;
    w->arg = arg;
    *out = w;
    return ST_OK;
out:
    if (copy != -1)
        close(copy);
    free(w);
    return ST_NO_MEMORY;
}

static void on_interest(struct loop_watch *w, int events)
{
    w->interest = events;
    if ((events & LOOP_READ) != 0 && !h2o_socket_is_reading(w->sock))
        h2o_socket_read_start(w->sock, on_sock_read);
    else if ((events & LOOP_READ) == 0 && h2o_socket_is_reading(w->sock))
        h2o_socket_read_stop(w->sock);
    if ((events & LOOP_WRITE) != 0)
        arm_write(w);
}

static void on_unwatch(struct loop_watch *w)
{
    h2o_socket_close(w->sock);
    free(w);
}

static void on_timer_start(struct loop *l, struct loop_timer *t, int64_t delay_ms)
{
    timer_wheel_start(&from_loop(l)->timers, t, clock_mono_ms(), delay_ms);
}

static void on_timer_stop(struct loop *l, struct loop_timer *t)
{
    (void)l;
    timer_wheel_stop(t);
}

static void on_post(struct loop *base, struct loop_message *m)
{
    struct h2o_loop *l = from_loop(base);
    bool was_empty;

    m->next = NULL;
    pthread_mutex_lock(&l->mutex);
    was_empty = l->inbox_head == NULL;
    *l->inbox_tail = m;
    l->inbox_tail = &m->next;
    pthread_mutex_unlock(&l->mutex);
    /* Only who filled an empty inbox sends, and the loop unlinks the wake before it empties the
     * inbox: the one wake is never under way twice. */
    if (was_empty)
        h2o_multithread_send_message(&l->receiver, &l->wake);
}

static void on_receive(h2o_multithread_receiver_t *receiver, h2o_linklist_t *messages)
{
    struct h2o_loop *l = CONTAINER_OF(receiver, struct h2o_loop, receiver);
    struct loop_message *m;

    (void)messages; /* the wake alone */
    if (h2o_linklist_is_linked(&l->wake.link))
        h2o_linklist_unlink(&l->wake.link);
    pthread_mutex_lock(&l->mutex);
    m = l->inbox_head;
    l->inbox_head = NULL;
    l->inbox_tail = &l->inbox_head;
    pthread_mutex_unlock(&l->mutex);
    while (m != NULL) {
        struct loop_message *next = m->next;

        m->on_message(m);
        m = next;
    }
}

static const struct loop_ops h2o_loop_ops = {
    .now_ms = on_now_ms,
    .watch = on_watch,
    .interest = on_interest,
    .unwatch = on_unwatch,
    .timer_start = on_timer_start,
    .timer_stop = on_timer_stop,
    .post = on_post,
};

void h2o_loop_init(struct h2o_loop *l)
{
    *l = (struct h2o_loop){.super.ops = &h2o_loop_ops};
    l->evloop = h2o_evloop_create();
    timer_wheel_init(&l->timers, clock_mono_ms());
    pthread_mutex_init(&l->mutex, NULL);
    l->inbox_tail = &l->inbox_head;
    l->queue = h2o_multithread_create_queue(l->evloop);
    h2o_multithread_register_receiver(l->queue, &l->receiver, on_receive);
}

void h2o_loop_dispose(struct h2o_loop *l)
{
    h2o_multithread_unregister_receiver(l->queue, &l->receiver);
    h2o_multithread_destroy_queue(l->queue);
    h2o_evloop_destroy(l->evloop);
    pthread_mutex_destroy(&l->mutex);
}

void h2o_loop_turn(struct h2o_loop *l, int64_t max_wait_ms)
{
    int64_t wait = timer_wheel_wait_ms(&l->timers, clock_mono_ms(), max_wait_ms);

    if (h2o_evloop_run(l->evloop, (int32_t)wait) == -1 && errno != EINTR)
        log_error(NULL, "loop.wait", "errno=%d", errno);
    timer_wheel_run(&l->timers, clock_mono_ms());
}
