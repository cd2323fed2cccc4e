#include "store/redis.h"

#include <assert.h>
#include <hiredis/async.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/log.h"
#include "base/size.h"

#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 2000
/* More values than any script of ours returns. */
#define VALUES_MAX 32

enum link_state {
    LINK_AWAY,    /* no context; retry_timer runs */
    LINK_GREETED, /* a PING is out: a frozen server accepts connections, but does not answer */
    LINK_UP,
    LINK_CLOSING
};

/* In `pending` while hiredis knows it, then in `done` until it is delivered. */
struct command {
    struct command *prev, *next;
    struct redis *redis;
    const struct redis_script *script;
    redis_callback on_answer;
    void *arg;
    size_t n_words;  /* of the whole command */
    struct buf tail; /* the command behind the script's name, in RESP: EVALSHA and EVAL share it */
    int64_t deadline_ms;
    enum status status;
};

struct redis {
    struct loop *loop;
    struct redis_config cfg;
    char *socket_path;
    enum link_state state;
    redisAsyncContext *ac; /* NULL: away. hiredis may free it in any of its calls: see on_cleanup */
    struct loop_watch *watch;
    int interest;
    struct loop_timer link_timer;     /* away: next attempt; greeted: patience with the PING */
    struct loop_timer deadline_timer; /* for the first of `pending`: deadlines are in its order */
    struct loop_timer deliver_timer;  /* `done` is delivered in the next turn, never from inside */
    int64_t backoff_ms;
    struct command pending, done; /* rings */
    size_t n_pending;
};

static void ring_init(struct command *ring)
{
    ring->prev = ring->next = ring;
}

static bool ring_is_empty(const struct command *ring)
{
    return ring->next == ring;
}

static void ring_remove(struct command *c)
{
    c->prev->next = c->next;
    c->next->prev = c->prev;
}

static void ring_append(struct command *ring, struct command *c)
{
    c->prev = ring->prev;
    c->next = ring;
    c->prev->next = c->next->prev = c;
}

/* ---- answers ---- */

static void command_free(struct command *c)
{
    buf_dispose(&c->tail);
    free(c);
}

static void arm_deadline(struct redis *r)
{
    if (ring_is_empty(&r->pending))
        loop_timer_stop(r->loop, &r->deadline_timer);
    else
        loop_timer_start(r->loop, &r->deadline_timer,
                         r->pending.next->deadline_ms - loop_now_ms(r->loop));
}

static void leave_pending(struct command *c)
{
    ring_remove(c);
    c->redis->n_pending--;
    arm_deadline(c->redis);
}

static void fail_later(struct command *c, enum status status)
{
    c->status = status;
    ring_append(&c->redis->done, c);
    if (c->redis->state != LINK_CLOSING)
        loop_timer_start(c->redis->loop, &c->redis->deliver_timer, 0);
}

/* Only what is there now: a callback that asks again at once waits for the next turn. */
static void deliver(void *arg)
{
    struct redis *r = arg;
    struct command *last = r->done.prev, *c;
    bool is_last;

    if (ring_is_empty(&r->done))
        return;
    do {
        struct redis_answer a;

        c = r->done.next;
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what is freed below left the ring before */
        a = (struct redis_answer){.status = c->status};
        ring_remove(c);
        c->on_answer(c->arg, &a);
        is_last = c == last;
        command_free(c);
    } while (!is_last);
}

static struct redis_value value_of(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        return (struct redis_value){.is_integer = true, .integer = reply->integer};
    if (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS)
        return (struct redis_value){.text = reply->str, .len = reply->len};
    return (struct redis_value){.text = "", .len = 0};
}

static void answer_values(struct command *c, const redisReply *reply)
{
    struct redis_value values[VALUES_MAX];
    struct redis_answer a = {.status = ST_OK, .values = values, .n_values = 1};

    if (reply->type == REDIS_REPLY_ARRAY) {
        a.n_values = reply->elements;
        if (a.n_values > VALUES_MAX)
            a = (struct redis_answer){.status = ST_INTERNAL};
        for (size_t i = 0; i < a.n_values; i++)
            values[i] = value_of(reply->element[i]);
    } else {
        values[0] = value_of(reply);
    }
    c->on_answer(c->arg, &a);
}

static bool starts_with(const redisReply *reply, const char *prefix)
{
    size_t len = strlen(prefix);

    return reply->len >= len && memcmp(reply->str, prefix, len) == 0;
}

/* Error replies that say "not now" and not "your script is wrong". */
static enum status status_of_error(const redisReply *reply)
{
    static const char *const passing[] = {"LOADING",  "BUSY",       "OOM",       "MISCONF",
                                          "READONLY", "MASTERDOWN", "NOREPLICAS"};

    for (size_t i = 0; i < COUNT_OF(passing); i++)
        if (starts_with(reply, passing[i]))
            return ST_UNAVAILABLE;
    return ST_INTERNAL;
}

static enum status send_eval(struct command *c, bool with_source);

static void on_reply(redisAsyncContext *ac, void *reply_, void *arg)
{
    struct command *c = arg;
    struct redis *r = c->redis;
    const redisReply *reply = reply_;
    struct redis_answer a;

    (void)ac;
    if (reply == NULL) { /* the connection goes: hiredis ends what was outstanding */
        leave_pending(c);
        fail_later(c, c->deadline_ms <= loop_now_ms(r->loop) ? ST_TIMEOUT : ST_UNAVAILABLE);
        return;
    }
    if (reply->type != REDIS_REPLY_ERROR) {
        leave_pending(c);
        answer_values(c, reply);
        command_free(c);
        return;
    }
    if (starts_with(reply, "NOSCRIPT") && send_eval(c, true) == ST_OK)
        return;
    a = (struct redis_answer){.status = status_of_error(reply)};
    log_error(NULL, "redis.script", "script=%s error=%s", c->script->name, reply->str);
    leave_pending(c);
    c->on_answer(c->arg, &a);
    command_free(c);
}

/* ---- the connection ---- */

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
        arm_deadline(r);
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
    r->deliver_timer = (struct loop_timer){.on_timer = deliver, .arg = r};
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
        deliver(r);
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

/* ---- commands ---- */

void redis_script_init(struct redis_script *s, const char *name, const char *source, size_t len)
{
    unsigned char digest[SHA_DIGEST_LENGTH];

    SHA1((const unsigned char *)source, len, digest);
    s->name = name;
    s->source = source;
    s->len = len;
    hex_encode(digest, sizeof digest, s->sha1);
}

/* One bulk string of RESP, Redis's protocol. */
static void put_word(struct buf *b, const char *data, size_t len)
{
    buf_printf(b, "$%zu\r\n", len);
    buf_append(b, data, len);
    buf_puts(b, "\r\n");
}

static void put_words(struct buf *b, const struct redis_arg *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put_word(b, words[i].data, words[i].len);
}

static enum status send_eval(struct command *c, bool with_source)
{
    struct redis *r = c->redis;
    struct buf b;
    int rc = REDIS_ERR;

    buf_init(&b);
    buf_printf(&b, "*%zu\r\n", c->n_words);
    if (with_source) {
        put_word(&b, "EVAL", 4);
        put_word(&b, c->script->source, c->script->len);
    } else {
        put_word(&b, "EVALSHA", 7);
        put_word(&b, c->script->sha1, sizeof c->script->sha1 - 1);
    }
    buf_append(&b, c->tail.data, c->tail.len);
    if (!b.failed && !c->tail.failed)
        rc = redisAsyncFormattedCommand(r->ac, on_reply, c, b.data, b.len);
    buf_dispose(&b);
    return rc == REDIS_OK ? ST_OK : ST_UNAVAILABLE;
}

static struct command *new_command(struct redis *r, const struct redis_script *s,
                                   redis_callback on_answer, void *arg)
{
    struct command *c = calloc(1, sizeof *c);

    assert(c != NULL); /* without memory for it the promised callback can never come */
    c->redis = r;
    c->script = s;
    c->on_answer = on_answer;
    c->arg = arg;
    c->deadline_ms = loop_now_ms(r->loop) + r->cfg.command_timeout_ms;
    buf_init(&c->tail);
    return c;
}

void redis_eval(struct redis *r, const struct redis_script *s, const struct redis_arg *keys,
                size_t n_keys, const struct redis_arg *args, size_t n_args,
                redis_callback on_answer, void *arg)
{
    struct command *c = new_command(r, s, on_answer, arg);
    char count[24];
    struct redis_arg n = {count, 0};

    n.len = (size_t)snprintf(count, sizeof count, "%zu", n_keys);
    c->n_words = 3 + n_keys + n_args;
    put_words(&c->tail, &n, 1);
    put_words(&c->tail, keys, n_keys);
    put_words(&c->tail, args, n_args);
    if (r->state != LINK_UP || r->n_pending >= r->cfg.in_flight_max ||
        send_eval(c, false) != ST_OK) {
        fail_later(c, ST_UNAVAILABLE);
        return;
    }
    ring_append(&r->pending, c);
    r->n_pending++;
    if (r->pending.next == c)
        arm_deadline(r);
}
