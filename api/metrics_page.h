/* The page of /metrics as it is served: prepared once for all who ask within METRICS_PAGE_MS, since
 * routers ask 20 times a second each. Any thread. */
#ifndef API_METRICS_PAGE_H
#define API_METRICS_PAGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* The oldest page that is served. The loops publish their gauges as often, the engine tells its own
 * four times a second. */
#define METRICS_PAGE_MS 50

struct metrics_page {
    pthread_mutex_t lock;
    struct buf text;  /* under lock, as the next one; keeps its memory */
    int64_t built_ms; /* monotonic; when `text` is not empty */
    void (*build)(struct buf *b, void *arg);
    void *arg;
};

/* build: appends the page; called under the lock, from any thread. */
void metrics_page_init(struct metrics_page *p, void (*build)(struct buf *b, void *arg), void *arg);
void metrics_page_dispose(struct metrics_page *p);
/* Appends the page to *out, built anew when the last one is too old. A page that could not be built
 * marks *out as failed. */
void metrics_page_get(struct metrics_page *p, int64_t now_ms, struct buf *out);

#endif
