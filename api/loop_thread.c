#include "api/loop_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/adoption.h"
#include "api/disconnect.h"
#include "api/inference.h"
#include "api/request.h"
#include "base/log.h"
#include "base/size.h"

#define TURN_MAX_MS 1000 /* a loop turns at least so often */
/* Connections taken per turn, so that those that are there get their turn too. */
#define ACCEPTS_PER_TURN 16
#define SAMPLE_TICKS     (1000 / TICK_MS)
/* At stop: how long callbacks that always come may take, and how long sockets and Redis. */
#define STOP_WORK_MS   5000
#define STOP_SOCKET_MS 1000

/* ---- accept ---- */

static void on_acceptable(h2o_socket_t *sock, const char *err)
{
    struct loop_listener *from = sock->data;

    if (err != NULL)
        return;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        h2o_socket_t *accepted = h2o_evloop_socket_accept(sock);

        if (accepted == NULL)
            return;
        connection_accept(from->loop, accepted, from->kind);
    }
}

static enum status listen_on(struct api_loop *l, const struct listener *from)
{
    struct loop_listener *to = &l->listeners[l->n_listeners];
    int fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0);

    if (fd == -1)
        return ST_IO;
    to->loop = l;
    to->kind = from->kind;
    to->sock = h2o_evloop_socket_create(l->loop.evloop, fd, H2O_SOCKET_FLAG_DONT_READ);
    to->sock->data = to;
    l->n_listeners++;
    h2o_socket_read_start(to->sock, on_acceptable);
    return ST_OK;
}

static void close_listeners(struct api_loop *l)
{
    while (l->n_listeners > 0)
        h2o_socket_close(l->listeners[--l->n_listeners].sock);
}

/* ---- housekeeping ---- */

static void publish_models(struct api_loop *l)
{
    const struct engine *e = l->api->parts.engine;

    atomic_store(&l->engine_ready, l->link != NULL && engine_link_is_ready(l->link));
    for (size_t i = 0; i < l->api->n_models; i++)
        atomic_store(&l->models_ready[i],
                     l->link != NULL && engine_link_serves(l->link, engine_model_at(e, i)));
}

static void publish(struct api_loop *l)
{
    struct metrics *m = &l->metrics;
    size_t unsettled = quota_unsettled(l->quota);

    atomic_store(&l->redis_ready, redis_is_connected(l->redis));
    publish_models(l);
    atomic_store(&l->beat_ms, loop_now_ms(&l->loop.super));
    atomic_store(&m->live, l->n_live);
    atomic_store(&m->connections, l->n_connections);
    atomic_store(&m->unsettled, unsettled);
    atomic_store(&l->idle, l->draining && l->n_live == 0 && unsettled == 0);
}

static void on_tick(void *arg)
{
    struct api_loop *l = arg;

    disconnect_poll(l);
    inference_make_room(l);
    if (++l->n_ticks % SAMPLE_TICKS == 0)
        connection_sample(l);
    publish(l);
    loop_timer_start(&l->loop.super, &l->tick, TICK_MS);
}

/* ---- the end, step by step ---- */

static void drain(struct api_loop *l)
{
    if (l->draining)
        return;
    l->draining = true;
    close_listeners(l);
    h2o_context_request_shutdown(&l->ctx);
    connection_shut_all(l, false);
}

static void cancel_all(struct api_loop *l)
{
    l->cancelling = true;
    for (struct request *r = l->live, *next; r != NULL; r = next) {
        next = r->next;
        request_cancel(r, ERROR_UNAVAILABLE);
    }
}

static void on_drain(struct loop_message *m)
{
    drain(CONTAINER_OF(m, struct api_loop, on_drain));
}

static void on_cancel(struct loop_message *m)
{
    cancel_all(CONTAINER_OF(m, struct api_loop, on_cancel));
}

static void on_stop(struct loop_message *m)
{
    CONTAINER_OF(m, struct api_loop, on_stop)->stop = true;
}

static bool has_no_requests(const struct api_loop *l)
{
    return l->n_live == 0;
}

static bool has_adopted(const struct api_loop *l)
{
    return l->adoption == NULL || adoption_left(l->adoption) == 0;
}

static bool has_no_connections(const struct api_loop *l)
{
    return l->n_connections == 0;
}

static bool has_settled(const struct api_loop *l)
{
    return quota_unsettled(l->quota) == 0;
}

/* H2O's dispose asserts that none of its timers waits; a socket that just closed may have left one.
 */
static bool has_no_http_timers(const struct api_loop *l)
{
    const h2o_timeout_t *const timers[] = {
        &l->ctx.zero_timeout,
        &l->ctx.one_sec_timeout,
        &l->ctx.hundred_ms_timeout,
        &l->ctx.handshake_timeout,
        &l->ctx.http1.req_timeout,
        &l->ctx.http2.idle_timeout,
        &l->ctx.http2.graceful_shutdown_timeout,
    };

    for (size_t i = 0; i < COUNT_OF(timers); i++)
        if (timers[i]->_entries.next != &timers[i]->_entries)
            return false;
    return true;
}

static bool turn_until(struct api_loop *l, bool (*reached)(const struct api_loop *), int64_t max_ms)
{
    int64_t end_ms = loop_now_ms(&l->loop.super) + max_ms;

    while (!reached(l)) {
        if (loop_now_ms(&l->loop.super) >= end_ms)
            return false;
        h2o_loop_turn(&l->loop, TICK_MS);
    }
    return true;
}

static void close_parts(struct api_loop *l)
{
    loop_timer_stop(&l->loop.super, &l->tick);
    quota_close(l->quota);
    redis_close(l->redis);
    h2o_context_dispose(&l->ctx);
    h2o_loop_dispose(&l->loop);
    free(l->polled);
    free(l->polled_for);
}

/* Before the link closes. False: the journal has not answered, and still points into it. */
static bool end_adoption(struct api_loop *l)
{
    if (l->adoption == NULL)
        return true;
    adoption_settle(l->adoption);
    if (!turn_until(l, has_adopted, STOP_WORK_MS))
        return false;
    adoption_free(l->adoption);
    l->adoption = NULL;
    return true;
}

static void finish(struct api_loop *l)
{
    bool clean, adopted;

    drain(l);
    cancel_all(l);
    turn_until(l, has_no_requests, STOP_WORK_MS);
    adopted = end_adoption(l);
    engine_link_close(l->link);
    l->link = NULL;
    clean = turn_until(l, has_no_requests, STOP_WORK_MS) && adopted;
    connection_shut_all(l, true);
    clean &= turn_until(l, has_no_connections, STOP_SOCKET_MS);
    turn_until(l, has_settled, STOP_SOCKET_MS);
    /* The second GOAWAY of a graceful shutdown would wait for its second, for nobody. */
    if (h2o_timeout_is_linked(&l->ctx.http2._graceful_shutdown_timeout))
        h2o_timeout_unlink(&l->ctx.http2._graceful_shutdown_timeout);
    clean &= turn_until(l, has_no_http_timers, STOP_SOCKET_MS);
    /* What still holds requests or sockets points into this: the process ends, so leave it. */
    if (clean)
        close_parts(l);
    else
        log_error(NULL, "loop.stop", "requests=%zu connections=%u left", l->n_live,
                  l->n_connections);
}

/* ---- the thread ---- */

static void init_accept(struct api_loop *l)
{
    l->accept_plain = (h2o_accept_ctx_t){.ctx = &l->ctx, .hosts = l->api->conf.hosts};
    l->accept_tls = l->accept_plain;
    l->accept_tls.ssl_ctx = l->api->tls;
}

/* The slots only: what the buckets lent is back within a minute. Any one loop does it. */
static void release_interrupted(struct api_loop *l)
{
    const struct api_config *cfg = &l->api->cfg;

    if (l != &l->api->loops[0])
        return;
    for (size_t i = 0; i < cfg->n_interrupted; i++)
        quota_settle(l->quota, &cfg->interrupted[i].ask, 0);
}

/* Any one loop does it. */
static enum status start_adoption(struct api_loop *l)
{
    const struct api *a = l->api;
    const struct adoption_config cfg = {.loop = &l->loop.super,
                                        .engine = a->parts.engine,
                                        .link = l->link,
                                        .billing = a->parts.billing,
                                        .wait_ms = a->cfg.adopt_ms,
                                        .requests = a->cfg.interrupted,
                                        .n = a->cfg.n_interrupted};

    return l == &a->loops[0] ? adoption_start(&cfg, &l->adoption) : ST_OK;
}

static enum status open_parts(struct api_loop *l)
{
    struct loop *loop = &l->loop.super;
    enum status s = redis_open(loop, &l->api->cfg.redis, &l->redis);

    if (s == ST_OK)
        s = quota_open(loop, l->redis, &l->quota);
    if (s == ST_OK)
        s = engine_link_open(l->api->parts.engine, loop, &l->link);
    for (size_t i = 0; s == ST_OK && i < l->api->n_listeners; i++)
        s = listen_on(l, &l->api->listeners[i]);
    /* Last: nothing of it has to be taken back. */
    return s == ST_OK ? start_adoption(l) : s;
}

static enum status open_loop(struct api_loop *l)
{
    enum status s;

    h2o_loop_init(&l->loop);
    h2o_context_init(&l->ctx, l->loop.evloop, &l->api->conf);
    init_accept(l);
    l->tick = (struct loop_timer){.on_timer = on_tick, .arg = l};
    s = open_parts(l);
    if (s == ST_OK) {
        release_interrupted(l);
        on_tick(l);
        return ST_OK;
    }
    close_listeners(l);
    if (l->link != NULL)
        engine_link_close(l->link);
    close_parts(l);
    return s;
}

static void *on_thread(void *arg)
{
    struct api_loop *l = arg;
    enum status s = open_loop(l);

    l->start_status = s;
    sem_post(&l->started);
    if (s != ST_OK)
        return NULL;
    while (!l->stop)
        h2o_loop_turn(&l->loop, TURN_MAX_MS);
    finish(l);
    return NULL;
}

/* Signals are the main thread's. */
static int start_without_signals(struct api_loop *l)
{
    sigset_t all, before;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&l->thread, NULL, on_thread, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

static void wait_started(struct api_loop *l)
{
    while (sem_wait(&l->started) == -1 && errno == EINTR)
        ;
}

enum status loop_thread_start(struct api_loop *l, struct api *a)
{
    l->api = a;
    l->answers.all = &a->answers;
    l->on_drain.on_message = on_drain;
    l->on_cancel.on_message = on_cancel;
    l->on_stop.on_message = on_stop;
    sem_init(&l->started, 0, 0);
    if (start_without_signals(l) != 0) {
        sem_destroy(&l->started);
        return ST_NO_MEMORY;
    }
    wait_started(l);
    if (l->start_status != ST_OK)
        pthread_join(l->thread, NULL);
    sem_destroy(&l->started);
    return l->start_status;
}

void loop_thread_drain(struct api_loop *l)
{
    loop_post(&l->loop.super, &l->on_drain);
}

void loop_thread_cancel(struct api_loop *l)
{
    loop_post(&l->loop.super, &l->on_cancel);
}

void loop_thread_stop(struct api_loop *l)
{
    loop_post(&l->loop.super, &l->on_stop);
    pthread_join(l->thread, NULL);
}
