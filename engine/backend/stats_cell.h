/* The last state that an engine told, copied between threads under a mutex that nobody holds while
 * working. Every link of a target writes it; any thread reads. */
#ifndef ENGINE_BACKEND_STATS_CELL_H
#define ENGINE_BACKEND_STATS_CELL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

struct stats_cell {
    pthread_mutex_t lock;
    struct engine_stats last; /* under lock, as the next ones; `connected` is not used */
    uint32_t n_connected;     /* links that are greeted */
    int64_t received_ms;      /* monotonic */
};

void stats_cell_init(struct stats_cell *c);
void stats_cell_dispose(struct stats_cell *c);

/* A link was greeted by an engine, or lost it. */
void stats_cell_connect(struct stats_cell *c, uint32_t pid, const char *device, const char *build);
void stats_cell_disconnect(struct stats_cell *c);
/* Why there is no engine: stays until one greets. False: the same was said before. */
bool stats_cell_refuse(struct stats_cell *c, const char *absence);
/* The same of one that was unloaded while idle, and is loaded for the next job. */
bool stats_cell_sleep(struct stats_cell *c, const char *absence);
/* The numbers of *s; pid, device and build stay. */
void stats_cell_update(struct stats_cell *c, const struct engine_stats *s, int64_t now_ms);
/* While work waits the age of the last step grows also when the engine is silent: that is what a
 * watchdog looks for. */
void stats_cell_read(struct stats_cell *c, int64_t now_ms, struct engine_stats *out);

#endif
