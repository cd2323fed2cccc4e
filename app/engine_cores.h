/* Which cores the engine computes on, and how it shares them: so that gateway, Redis and journal
 * have the CPU they need while it is busy. Before any thread starts; threads inherit it. */
#ifndef APP_ENGINE_CORES_H
#define APP_ENGINE_CORES_H

#include <sched.h>
#include <stdbool.h>

#include "base/status.h"

struct engine_cores {
    cpu_set_t set;
    unsigned n;     /* cores in it */
    bool is_pinned; /* it leaves cores of this process's to the others */
    int nice;       /* else: its priority */
};

/* spec: "auto" (all but the first of `allowed` where there are more than two, else all), "off"
 * (all), or a list of numbers and ranges, "1-3,5". ST_INVALID: no such list, or a core that is not
 * allowed. Pure. */
MUST_CHECK enum status engine_cores_choose(const char *spec, const cpu_set_t *allowed,
                                           struct engine_cores *out, struct reason *why);
/* Pins this process, or, where it shares every core, lowers its priority by `nice` (nice(2)). Where
 * the cores aren't known *out has none. */
MUST_CHECK enum status engine_cores_apply(const char *spec, int nice, struct engine_cores *out,
                                          struct reason *why);
/* What was applied; asks nothing of the system, so it is right in a locked process. */
void engine_cores_log(const struct engine_cores *c);

#endif
