/* The page of /metrics as it is served: prepared once for all who ask within METRICS_PAGE_MS, since
 * routers ask 20 times a second each. No thread waits for another's building: one of them builds
 * beside the last page, which the others are served meanwhile. Any thread. */
#ifndef API_METRICS_PAGE_H
#define API_METRICS_PAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* The oldest page that is served, but for the time that building one takes. The loops publish their
 * gauges as often, the engine tells its own four times a second. */
#define METRICS_PAGE_MS 50

/* Not changed once others have it; freed with its last reference. */
struct prepared_page {
    atomic_uint n_references;
    struct buf text;
};

struct metrics_page {
    pthread_mutex_t building; /* only tried; held while a page is built */
    pthread_mutex_t lock;     /* held to take a reference to `last` or to exchange it */
    struct prepared_page *last;
    _Atomic int64_t built_ms; /* monotonic */
    void (*build)(struct buf *b, void *arg);
    void *arg;
};

/* build: appends the page; called from any thread, by one at a time. */
void metrics_page_init(struct metrics_page *p, void (*build)(struct buf *b, void *arg), void *arg);
void metrics_page_dispose(struct metrics_page *p);
/* Appends the page to *out, built anew when the last one is too old and nobody is at it. A page
 * that could not be built, or is being built for the first time, marks *out as failed; call this
 * once before others may, and that time is over. */
void metrics_page_get(struct metrics_page *p, int64_t now_ms, struct buf *out);

#endif
