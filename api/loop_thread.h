/* One loop: a thread with its H2O context, Redis connection, quota, engine link, and every request
 * accepted there. All fields but those marked belong to the thread. */
#ifndef API_LOOP_THREAD_H
#define API_LOOP_THREAD_H

#include <h2o.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/answers.h"
#include "api/connection.h"
#include "api/h2o_loop.h"
#include "api/metrics.h"
#include "api/server.h"
#include "engine/engine.h"
#include "quota/quota.h"
#include "store/redis.h"

struct adoption;
struct request;

/* How often the loop looks for clients that left (HTTP/1.1) and publishes its state. One step of
 * the engine takes about as long. */
#define TICK_MS 50

/* A listener as this loop watches it: every loop accepts from the same queue. */
struct loop_listener {
    struct api_loop *loop;
    enum listener_kind kind;
    h2o_socket_t *sock;
};

struct api_loop {
    struct h2o_loop loop;
    struct api *api;
    pthread_t thread;
    h2o_context_t ctx;
    h2o_accept_ctx_t accept_plain, accept_tls;
    struct loop_listener listeners[LISTENERS_MAX];
    size_t n_listeners;
    struct redis *redis;
    struct quota *quota;
    struct engine_link *link;
    struct adoption *adoption; /* of the first loop; NULL: none */
    struct connection *connections;
    unsigned n_connections;
    struct request *live; /* requests whose work goes on */
    size_t n_live;
    size_t buffered_bytes; /* bodies that H2O holds for us */
    struct answer_list answers;
    struct loop_timer tick;
    unsigned n_ticks;
    struct pollfd *polled; /* scratch of the search for clients that left */
    struct request **polled_for;
    size_t polled_cap;
    bool draining;
    bool cancelling; /* the drain's deadline has come: nothing new is begun */
    bool stop;
    struct loop_message on_drain, on_cancel, on_stop; /* each posted once at most */
    sem_t started;
    enum status start_status; /* valid after `started` */
    /* written by the thread, read by any */
    struct metrics metrics;
    atomic_bool redis_ready, engine_ready;
    atomic_bool *models_ready; /* (api.n_models) */
    _Atomic int64_t beat_ms;   /* monotonic: when it last turned */
    atomic_bool idle;          /* draining, and no request in hand, nothing to settle */
};

/* Starts the thread; returns when it serves, or when it failed to start and is gone. *l is zeroed.
 */
MUST_CHECK enum status loop_thread_start(struct api_loop *l, struct api *a);
/* Any thread: stops accepting, says GOAWAY. */
void loop_thread_drain(struct api_loop *l);
/* Any thread: cancels every request; each is still settled. */
void loop_thread_cancel(struct api_loop *l);
/* Any thread but the loop's: ends what is left and joins. */
void loop_thread_stop(struct api_loop *l);

#endif
