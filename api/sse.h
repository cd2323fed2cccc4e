/* A streamed answer: server-sent events over one H2O response.
 *
 * Events are collected in one buffer while another is on its way, so that a slow client costs
 * memory up to a bound and then its stream. The response starts with the first event or the first
 * ping, whichever is first: until then a failure is still an HTTP error. Lives in the request's
 * state; does nothing once the client is gone. */
#ifndef API_SSE_H
#define API_SSE_H

#include <h2o.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/event_queue.h"
#include "api/request.h"
#include "base/buf.h"
#include "base/loop.h"

/* Events that wait for a client that doesn't read, of a stream with one choice and no
 * log-probabilities: about 200 bytes per token. */
#define SSE_PENDING_MAX_BYTES ((size_t)1 << 20)

struct sse {
    h2o_generator_t generator;
    struct request *request;
    struct event_queue queue;
    bool started, in_flight, ended, broken;
    int64_t last_ms; /* when something was last handed over */
    int64_t ping_ms;
    struct loop_timer ping;
    void (*on_start)(void *arg); /* writes the stream's first event */
    void (*on_stuck)(void *arg); /* the client doesn't read */
    void (*on_sent)(void *arg);  /* some is out: it holds less */
    void *arg;
};

/* Begins to ping. pending_max: bytes of events that may wait for a client that doesn't read. */
void sse_init(struct sse *s, struct request *r, int64_t ping_ms, size_t pending_max);
void sse_dispose(struct sse *s);
/* Write one event's data into what sse_begin gives, then sse_commit. Several events may be
 * committed before one sse_flush. */
struct buf *sse_begin(struct sse *s);
void sse_commit(struct sse *s);
void sse_flush(struct sse *s);
/* Sends what waits and ends the response: the stream is whole. */
void sse_end(struct sse *s);
/* The stream can't be ended properly: cut it, so that no client takes it for whole. */
void sse_break(struct sse *s);

#endif
