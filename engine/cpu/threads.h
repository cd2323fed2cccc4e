/* The compute threads of the CPU device: one job at a time, split into numbered items that the
 * threads take in turn. The caller is thread 0. Idle threads spin for some tens of microseconds
 * (the gap between two layers), then sleep in a futex. Items must not depend on which thread runs
 * them: results never depend on the number of threads. One owner calls. */
#ifndef ENGINE_CPU_THREADS_H
#define ENGINE_CPU_THREADS_H

#include <stdint.h>

#include "base/status.h"

#define POOL_THREADS_MAX 256

struct pool;

/* Of the cores that this process may use all, or all but one where that leaves more than one, so
 * that the gateway beside it stays alive. */
unsigned pool_default_threads(void);
/* n_threads >= 1, the caller included. */
MUST_CHECK enum status pool_open(unsigned n_threads, struct pool **out, struct reason *why);
void pool_close(struct pool *p); /* NULL is fine */
unsigned pool_n_threads(const struct pool *p);

/* Calls fn(arg, item, thread) for each item in [0, n_items), thread in [0, pool_n_threads), and
 * returns when all are done. One item runs on the caller without waking anybody. */
void pool_run(struct pool *p, void (*fn)(void *arg, uint32_t item, unsigned thread), void *arg,
              uint32_t n_items);

#endif
