/* The timers of one loop: a hashed wheel over the monotonic clock.
 *
 * Starting and stopping cost O(1); a timer that lies further away than one turn of the wheel is
 * looked at once per turn. Pure: time comes in as now_ms, so tests need no clock. The timers are
 * the callers' (struct loop_timer is intrusive). One thread. */
#ifndef API_TIMER_WHEEL_H
#define API_TIMER_WHEEL_H

#include <stdint.h>

#include "base/loop.h"

/* One turn is 512 * 16 ms = 8 s: most of a loop's timers (housekeeping, pings, commands' deadlines)
 * lie within it. */
#define WHEEL_SLOTS   512
#define WHEEL_SLOT_MS 16

struct timer_wheel {
    struct loop_timer slots[WHEEL_SLOTS]; /* list anchors */
    int64_t done_ms;                      /* every timer due before this has fired */
    int64_t earliest_ms; /* no armed timer is due before this; INT64_MAX: none armed */
};

void timer_wheel_init(struct timer_wheel *w, int64_t now_ms);
/* (Re)arms. A delay below 0 counts as 0. */
void timer_wheel_start(struct timer_wheel *w, struct loop_timer *t, int64_t now_ms,
                       int64_t delay_ms);
/* Harmless when not armed. */
void timer_wheel_stop(struct loop_timer *t);
/* Fires what is due by now_ms. Callbacks may start and stop any timer; one that is started with
 * delay 0 from a callback fires in the next run, so a run always ends. */
void timer_wheel_run(struct timer_wheel *w, int64_t now_ms);
/* How long the loop may wait for descriptors: 0 .. max_ms. */
int64_t timer_wheel_wait_ms(const struct timer_wheel *w, int64_t now_ms, int64_t max_ms);

#endif
