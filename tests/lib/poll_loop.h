/* base/loop.h on poll(2), for tests and for programs without H2O. The loop belongs to the thread
 * that runs its turns; only loop_post may come from others. Failures of memory abort. */
#ifndef TESTS_LIB_POLL_LOOP_H
#define TESTS_LIB_POLL_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"

struct loop *poll_loop_new(void);
/* Everything was unwatched and stopped before. */
void poll_loop_free(struct loop *l);

/* One turn: waits at most max_wait_ms (-1: for ever) for a descriptor, a timer or a message, and
 * handles what came. */
void poll_loop_turn(struct loop *l, int64_t max_wait_ms);
/* Turns until done(arg), asked after every turn; false when timeout_ms passed first. */
bool poll_loop_run_until(struct loop *l, bool (*done)(void *arg), void *arg, int64_t timeout_ms);
/* From the next turn on its clock is so much later. */
void poll_loop_skip(struct loop *l, int64_t ms);

#endif
