/* Bytes of a stream that wait for a client: events in `pending` while a chunk is in `sending`, on
 * its way. A chunk is made of whole events, so that those behind it can be dropped at any time and
 * another event may follow. An event ends with an empty line and has none inside. Pure; one thread
 * at a time; allocates nothing while its client keeps up. */
#ifndef API_EVENT_QUEUE_H
#define API_EVENT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Most that is handed over at once, unless one event is longer. */
#define EVENT_CHUNK_BYTES ((size_t)65536)

struct event_queue {
    struct buf pending; /* appended to by the caller; `failed` where it would pass `max` */
    struct buf sending; /* not changed between event_queue_take and event_queue_sent */
    size_t taken;       /* of pending: in `sending`, or sent */
    size_t max;         /* bytes that may wait */
};

void event_queue_init(struct event_queue *q, size_t max);
void event_queue_dispose(struct event_queue *q); /* zeros are fine */
/* Bytes that wait, without those on their way. */
size_t event_queue_waiting(const struct event_queue *q);
/* All bytes that it holds. */
size_t event_queue_held(const struct event_queue *q);
/* The next chunk into `sending` ("" when nothing waits); only when none is on its way. */
void event_queue_take(struct event_queue *q);
void event_queue_sent(struct event_queue *q);
/* What waits goes. */
void event_queue_drop(struct event_queue *q);

#endif
