/* When the engine last got on, for a watchdog. A loop that turns and builds no step while jobs wait
 * gets on with nothing: only steps count, and times at which nobody waited. Pure. */
#ifndef ENGINE_CORE_PROGRESS_H
#define ENGINE_CORE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    uint64_t steps; /* as last seen */
    bool had_work;
    int64_t last_us;
};

/* Before a turn: work that has come since the last one has not been waiting. */
static inline void progress_begin(struct progress *p, int64_t now_us)
{
    if (!p->had_work)
        p->last_us = now_us;
}

/* After it. has_work: jobs that a step could be for. */
static inline void progress_note(struct progress *p, uint64_t steps, bool has_work, int64_t now_us)
{
    if (steps != p->steps || !has_work)
        p->last_us = now_us;
    p->steps = steps;
    p->had_work = has_work;
}

#endif
