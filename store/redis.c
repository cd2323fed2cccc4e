/* The connection: opened, greeted, given up when it is mute, opened again after a back-off. */
#include "store/redis.h"

#include <hiredis/async.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "store/redis_private.h"

#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 2000

static void set_interest(struct redis *r, int set, int clear)
{
    r->interest = (r->interest | set) & ~clear;
    loop_interest(r->loop, r->watch, r->interest);
}

static void add_read(void *arg)
{
    set_interest(arg, LOOP_READ, 0);
}

static void del_read(void *arg)
{
    set_interest(arg, 0, LOOP_READ);
}

static void add_write(void *arg)
{
    set_interest(arg, LOOP_WRITE, 0);
}

static void del_write(void *arg)
{
    set_interest(arg, 0, LOOP_WRITE);
}

static void go_away(struct redis *r)
{
    r->state = LINK_AWAY;
    loop_timer_start(r->loop, &r->link_timer, r->backoff_ms);
    r->backoff_ms = int64_min(r->backoff_ms * 2, BACKOFF_MAX_MS);
}

/* The one place that every end of a context goes through, ours or hiredis's own: after the
 * outstanding callbacks, before the descriptor is closed. */
static void on_cleanup(void *arg)
{
    struct redis *r = arg;

    loop_unwatch(r->loop, r->watch);
    r->watch = NULL;
    if (r->state == LINK_UP)
        log_warn(NULL, "redis.lost", "error=%s",
                 r->ac->c.err != 0 ? r->ac->c.errstr : "no answer in time");
    r->ac = NULL;
    if (r->state != LINK_CLOSING)
        go_away(r);
}

static void on_ready(void *arg, int events)
{
    struct redis *r = arg;

    if (events & LOOP_READ)
        redisAsyncHandleRead(r->ac);
    /* The read may have ended the context. */
    if ((events & LOOP_WRITE) && r->ac != NULL)
        redisAsyncHandleWrite(r->ac);
}

static void on_pong(redisAsyncContext *ac, void *reply_, void *arg)
{
    struct redis *r = arg;
    const redisReply *reply = reply_;

    (void)ac;
    if (reply == NULL)
        return;
    if (reply->type == REDIS_REPLY_ERROR) { /* still loading its data: dropped in the next turn */
        loop_timer_start(r->loop, &r->link_timer, 0);
        return;
    }
    loop_timer_stop(r->loop, &r->link_timer);
    r->state = LINK_UP;
    r->backoff_ms = BACKOFF_MIN_MS;
    log_info(NULL, "redis.connected", "socket=%s", r->socket_path);
}

static enum status attach(struct redis *r, redisAsyncContext *ac)
{
    enum status s = loop_watch(r->loop, ac->c.fd, on_ready, r, &r->watch);

    if (s != ST_OK)
        return s;
    r->interest = 0;
    r->ac = ac;
    ac->ev.data = r;
    ac->ev.addRead = add_read;
    ac->ev.delRead = del_read;
    ac->ev.addWrite = add_write;
    ac->ev.delWrite = del_write;
    ac->ev.cleanup = on_cleanup;
    return ST_OK;
}

static void connect_now(struct redis *r)
{
    redisAsyncContext *ac = redisAsyncConnectUnix(r->socket_path);

    if (ac == NULL || ac->err != 0 || attach(r, ac) != ST_OK) {
        log_debug(NULL, "redis.connect", "error=%s", ac != NULL ? ac->errstr : "out of memory");
        if (ac != NULL)
            redisAsyncFree(ac);
        go_away(r);
        return;
    }
    r->state = LINK_GREETED;
    loop_timer_start(r->loop, &r->link_timer, r->cfg.connect_timeout_ms);
    if (redisAsyncCommand(ac, on_pong, r, "PING") != REDIS_OK)
        redisAsyncFree(ac);
}

static void on_link_timer(void *arg)
{
    struct redis *r = arg;

    if (r->ac != NULL)
        redisAsyncFree(r->ac); /* no PONG in time; on_cleanup plans the next attempt */
    else
        connect_now(r);
}

static bool is_overdue(struct redis *r)
{
    return !ring_is_empty(&r->pending) && r->pending.next->deadline_ms <= loop_now_ms(r->loop);
}

/* Answers come in order, so one that is overdue holds up all behind it: the connection is dropped
 * and every outstanding command ends. */
static void on_deadline(void *arg)
{
    struct redis *r = arg;

    /* If it was this loop that slept, the answer is already in the socket. */
    if (r->ac != NULL && is_overdue(r))
        redisAsyncHandleRead(r->ac);
    if (r->ac != NULL && is_overdue(r))
        redisAsyncFree(r->ac);
    else
        redis_arm_deadline(r);
}

enum status redis_open(struct loop *loop, const struct redis_config *cfg, struct redis **out)
{
    struct redis *r = calloc(1, sizeof *r);

    if (r == NULL)
        return ST_NO_MEMORY;
    r->socket_path = strdup(cfg->socket_path);
    if (r->socket_path == NULL) {
        free(r);
        return ST_NO_MEMORY;
    }
    r->loop = loop;
    r->cfg = *cfg;
    r->backoff_ms = BACKOFF_MIN_MS;
    r->link_timer = (struct loop_timer){.on_timer = on_link_timer, .arg = r};
    r->deadline_timer = (struct loop_timer){.on_timer = on_deadline, .arg = r};
    r->deliver_timer = (struct loop_timer){.on_timer = redis_deliver, .arg = r};
    ring_init(&r->pending);
    ring_init(&r->done);
    connect_now(r);
    *out = r;
    return ST_OK;
}

void redis_close(struct redis *r)
{
    if (r == NULL)
        return;
    r->state = LINK_CLOSING;
    if (r->ac != NULL)
        redisAsyncFree(r->ac);
    while (!ring_is_empty(&r->done))
        redis_deliver(r);
    loop_timer_stop(r->loop, &r->link_timer);
    loop_timer_stop(r->loop, &r->deadline_timer);
    loop_timer_stop(r->loop, &r->deliver_timer);
    free(r->socket_path);
    free(r);
}

bool redis_is_connected(const struct redis *r)
{
    return r->state == LINK_UP;
}
