/* base/loop.h on H2O's event loop.
 *
 * The thread that owns it calls h2o_loop_turn in a row; everything else but posting happens inside
 * that call. H2O's own timers have one fixed delay per queue, so ours are a wheel whose next due
 * time bounds the wait. */
#ifndef API_H2O_LOOP_H
#define API_H2O_LOOP_H

#include <h2o.h>
#include <pthread.h>

#include "api/timer_wheel.h"
#include "base/loop.h"
#include "base/status.h"

struct h2o_loop {
    struct loop super;
    h2o_loop_t *evloop;
    struct timer_wheel timers;
    /* the inbox: any thread appends; `wake` is under way while it is not empty */
    h2o_multithread_queue_t *queue;
    h2o_multithread_receiver_t receiver;
    h2o_multithread_message_t wake;
    pthread_mutex_t mutex;
    struct loop_message *inbox_head, **inbox_tail;
};

/* On the thread that will turn it. */
void h2o_loop_init(struct h2o_loop *l);
/* After every watch and timer is gone and nobody posts any more. */
void h2o_loop_dispose(struct h2o_loop *l);
/* Waits for what comes next, at most max_wait_ms, and runs it. */
void h2o_loop_turn(struct h2o_loop *l, int64_t max_wait_ms);

#endif
