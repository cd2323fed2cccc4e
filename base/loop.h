/* An event loop as the rest of the house sees it: watch a descriptor, run a timer, receive messages
 * from other threads. Implemented on H2O's loop in api/h2o_loop.c and on poll(2) in
 * tests/lib/poll_loop.c; hiredis and the engine's socket use it and never see h2o.h.
 *
 * Everything but loop_post belongs to the loop's own thread. */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { LOOP_READ = 1, LOOP_WRITE = 2 };

/* Intrusive: embed it in the message, which has one owner: the poster until loop_post, then the
 * loop, then whoever on_message hands it to. */
struct loop_message {
    struct loop_message *next;
    void (*on_message)(struct loop_message *m);
};

/* Intrusive one-shot timer. Zero it, set on_timer and arg, then loop_timer_start. The fields below
 * the line belong to the loop. Must be stopped before its memory goes. */
struct loop_timer {
    void (*on_timer)(void *arg);
    void *arg;
    /* the loop's: */
    bool armed;
    int64_t due_ms;
    struct loop_timer *prev, *next;
};

struct loop_watch; /* one watched descriptor; owned by the loop until loop_unwatch */

struct loop;
struct loop_ops {
    int64_t (*now_ms)(struct loop *l);
    enum status (*watch)(struct loop *l, int fd, void (*on_ready)(void *arg, int events), void *arg,
                         struct loop_watch **out);
    void (*interest)(struct loop_watch *w, int events);
    void (*unwatch)(struct loop_watch *w);
    void (*timer_start)(struct loop *l, struct loop_timer *t, int64_t delay_ms);
    void (*timer_stop)(struct loop *l, struct loop_timer *t);
    void (*post)(struct loop *l, struct loop_message *m);
};
struct loop {
    const struct loop_ops *ops;
};

/* Monotonic, cached for this turn of the loop. */
static inline int64_t loop_now_ms(struct loop *l)
{
    return l->ops->now_ms(l);
}

/* Begins to watch fd (non-blocking; stays the caller's) with no interest; level-triggered.
 * on_ready may unwatch. Errors and hang-ups are reported as readable and writable. */
static inline MUST_CHECK enum status loop_watch(struct loop *l, int fd,
                                                void (*on_ready)(void *arg, int events), void *arg,
                                                struct loop_watch **out)
{
    return l->ops->watch(l, fd, on_ready, arg, out);
}

/* Which of LOOP_READ, LOOP_WRITE to report from now on. */
static inline void loop_interest(struct loop *l, struct loop_watch *w, int events)
{
    l->ops->interest(w, events);
}

/* Must come before the descriptor is closed. NULL is fine. */
static inline void loop_unwatch(struct loop *l, struct loop_watch *w)
{
    if (w != NULL)
        l->ops->unwatch(w);
}

/* (Re)arms the timer. */
static inline void loop_timer_start(struct loop *l, struct loop_timer *t, int64_t delay_ms)
{
    l->ops->timer_start(l, t, delay_ms);
}

/* Harmless when not armed. */
static inline void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
    l->ops->timer_stop(l, t);
}

/* Any thread: on_message runs on the loop's thread, in the order of one poster's posts. The only
 * wake-up is a write when the loop's inbox was empty. */
static inline void loop_post(struct loop *l, struct loop_message *m)
{
    l->ops->post(l, m);
}

#endif
