#include "api/event_queue.h"

#include <string.h>

void event_queue_init(struct event_queue *q, size_t max)
{
    buf_init(&q->pending);
    buf_init(&q->sending);
    q->pending.limit = max;
    q->taken = 0;
    q->max = max;
}

void event_queue_dispose(struct event_queue *q)
{
    buf_dispose(&q->pending);
    buf_dispose(&q->sending);
    q->taken = 0;
}

size_t event_queue_waiting(const struct event_queue *q)
{
    return q->pending.len - q->taken;
}

size_t event_queue_held(const struct event_queue *q)
{
    return event_queue_waiting(q) + q->sending.len;
}

/* Memory that one long event or a slow client's many have grown is given back. */
static void empty(struct buf *b)
{
    if (b->cap > 2 * EVENT_CHUNK_BYTES)
        buf_dispose(b);
    else
        buf_clear(b);
}

static void empty_pending(struct event_queue *q)
{
    empty(&q->pending);
    q->pending.limit = q->max;
    q->taken = 0;
}

/* The first whole events that fit in EVENT_CHUNK_BYTES, or the one that is longer. */
static size_t chunk_length(const struct event_queue *q)
{
    const char *from = q->pending.data + q->taken;
    const size_t left = event_queue_waiting(q);
    const char *end;
    size_t n = EVENT_CHUNK_BYTES;

    if (left <= n)
        return left;
    while (n >= 2 && (from[n - 1] != '\n' || from[n - 2] != '\n'))
        n--;
    if (n >= 2)
        return n;
    end = memmem(from + EVENT_CHUNK_BYTES - 1, left - (EVENT_CHUNK_BYTES - 1), "\n\n", 2);
    return end != NULL ? (size_t)(end - from) + 2 : left;
}

/* What was taken is moved away once it is half: a byte moves once on the average. */
static void move_up(struct event_queue *q)
{
    if (q->taken >= q->pending.len / 2) {
        buf_consume(&q->pending, q->taken);
        q->taken = 0;
    }
    q->pending.limit = q->max + q->taken;
}

void event_queue_take(struct event_queue *q)
{
    const struct buf all = q->pending;
    size_t n = event_queue_waiting(q) > 0 ? chunk_length(q) : 0;

    if (n == all.len) { /* all there is: by exchange, without a copy */
        q->pending = q->sending;
        q->sending = all;
        q->sending.limit = 0;
        empty_pending(q);
        return;
    }
    buf_append(&q->sending, all.data + q->taken, n);
    q->taken += n;
    if (q->taken == all.len)
        empty_pending(q);
    else
        move_up(q);
}

void event_queue_sent(struct event_queue *q)
{
    empty(&q->sending);
}

void event_queue_drop(struct event_queue *q)
{
    buf_dispose(&q->pending);
    empty_pending(q);
}
