/* Threads for blocking or long work behind one bounded queue: text (tokenize, render), Postgres.
 * A full queue refuses. The queue is the only thing the threads share. */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Intrusive: embed it; owned by the queue from worker_submit until on_run is called. */
struct work {
    struct work *next;
    /* `thread_state` is what the pool's thread_init made for this thread (NULL without one). */
    void (*on_run)(struct work *w, void *thread_state);
};

struct worker_config {
    const char *name; /* thread name, at most 15 characters */
    unsigned n_threads;
    size_t capacity;                 /* queued works; more are refused */
    void *(*thread_init)(void *arg); /* on the new thread; may be NULL */
    void (*thread_dispose)(void *thread_state);
    void *arg;
};

struct worker;

MUST_CHECK enum status worker_start(const struct worker_config *cfg, struct worker **out);
/* Runs what is queued, then joins the threads and frees. NULL is fine. */
void worker_stop(struct worker *w);
/* Any thread. ST_OVERLOADED when the queue is full (the work stays the caller's). */
MUST_CHECK enum status worker_submit(struct worker *w, struct work *work);

#endif
