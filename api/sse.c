#include "api/sse.h"

#include <sys/socket.h>

#include "api/loop_thread.h"
#include "api/respond.h"
#include "base/size.h"

static int64_t now_ms(const struct sse *s)
{
    return loop_now_ms(&s->request->loop->loop.super);
}

static void start_response(struct sse *s)
{
    struct request *r = s->request;

    s->started = true;
    respond_header(r, "cache-control", "no-cache");
    respond_header(r, "x-accel-buffering", "no");
    respond_head(r, 200, "text/event-stream; charset=utf-8");
    h2o_start_response(r->http, &s->generator);
}

/* Hands over what waits. The last use of the stream by its caller when it ends: H2O may free its
 * side inside. */
static void send_pending(struct sse *s)
{
    struct request *r = s->request;
    enum h2o_send_state state = H2O_SEND_STATE_IN_PROGRESS;
    h2o_iovec_t vec;

    event_queue_take(&s->queue);
    s->in_flight = true;
    s->last_ms = now_ms(s);
    /* A copy that found no memory leaves a gap. */
    s->broken = s->broken || s->queue.sending.failed;
    if (s->broken)
        state = H2O_SEND_STATE_ERROR;
    else if (s->ended && event_queue_waiting(&s->queue) == 0)
        state = H2O_SEND_STATE_FINAL;
    r->answered = state != H2O_SEND_STATE_IN_PROGRESS;
    vec = h2o_iovec_init(s->queue.sending.data, s->queue.sending.len);
    h2o_send(r->http, &vec, vec.len > 0, state);
}

static bool is_over(const struct sse *s)
{
    return s->request->http == NULL || s->request->answered;
}

void sse_flush(struct sse *s)
{
    if (is_over(s) || (s->in_flight && !s->queue.pending.failed))
        return;
    if (s->queue.pending.failed) {
        s->on_stuck(s->arg);
        return;
    }
    if (event_queue_waiting(&s->queue) == 0 && !s->ended && !s->broken)
        return;
    if (!s->started)
        start_response(s);
    send_pending(s);
}

static void on_proceed(h2o_generator_t *generator, h2o_req_t *http)
{
    struct sse *s = CONTAINER_OF(generator, struct sse, generator);

    (void)http;
    s->in_flight = false;
    event_queue_sent(&s->queue);
    s->on_sent(s->arg);
    sse_flush(s);
}

/* H2O frees its side right after this; the hook in its pool does what is to be done. */
static void on_stop(h2o_generator_t *generator, h2o_req_t *http)
{
    (void)generator;
    (void)http;
}

static void arm_ping(struct sse *s)
{
    loop_timer_start(&s->request->loop->loop.super, &s->ping,
                     int64_max(s->last_ms + s->ping_ms - now_ms(s), 1));
}

static void on_ping(void *arg)
{
    struct sse *s = arg;

    if (is_over(s) || s->ended || s->broken)
        return;
    if (now_ms(s) - s->last_ms >= s->ping_ms && !s->in_flight) {
        buf_puts(&s->queue.pending, ": ping\n\n");
        sse_flush(s);
    }
    if (s->in_flight)
        s->last_ms = now_ms(s); /* the client isn't reading: nothing to keep awake */
    arm_ping(s);
}

void sse_init(struct sse *s, struct request *r, int64_t ping_ms, size_t pending_max)
{
    s->generator = (h2o_generator_t){.proceed = on_proceed, .stop = on_stop};
    s->request = r;
    event_queue_init(&s->queue, pending_max);
    s->ping_ms = ping_ms;
    s->last_ms = now_ms(s);
    s->ping = (struct loop_timer){.on_timer = on_ping, .arg = s};
    arm_ping(s);
}

void sse_dispose(struct sse *s)
{
    if (s->request == NULL)
        return;
    loop_timer_stop(&s->request->loop->loop.super, &s->ping);
    event_queue_dispose(&s->queue);
}

struct buf *sse_begin(struct sse *s)
{
    if (s->on_start != NULL) {
        void (*on_start)(void *) = s->on_start;

        s->on_start = NULL; /* it comes back here */
        on_start(s->arg);
    }
    buf_puts(&s->queue.pending, "data: ");
    return &s->queue.pending;
}

void sse_commit(struct sse *s)
{
    buf_puts(&s->queue.pending, "\n\n");
}

void sse_end(struct sse *s)
{
    loop_timer_stop(&s->request->loop->loop.super, &s->ping);
    s->ended = true;
    sse_flush(s);
}

void sse_break(struct sse *s)
{
    struct request *r = s->request;

    loop_timer_stop(&r->loop->loop.super, &s->ping);
    s->broken = true;
    event_queue_drop(&s->queue);
    if (is_over(s) || !s->started)
        return;
    /* A write is under way to a client that doesn't read. On HTTP/1.1 the connection is this
     * stream's alone; on HTTP/2 the next free window ends the stream. */
    if (!s->in_flight)
        send_pending(s);
    else if (r->http->version < 0x200)
        shutdown(h2o_socket_get_fd(r->conn->sock), SHUT_RDWR);
}
