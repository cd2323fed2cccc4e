/* Scripts and their answers, whatever the connection is: each command is answered once. */
#include <assert.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/log.h"
#include "base/size.h"
#include "store/redis_private.h"

/* More values than any script of ours returns. */
#define VALUES_MAX 32

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

void redis_arm_deadline(struct redis *r)
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
    redis_arm_deadline(c->redis);
}

static void fail_later(struct command *c, enum status status)
{
    c->status = status;
    ring_append(&c->redis->done, c);
    if (c->redis->state != LINK_CLOSING)
        loop_timer_start(c->redis->loop, &c->redis->deliver_timer, 0);
}

/* Only what is there now: a callback that asks again at once waits for the next turn. */
void redis_deliver(void *arg)
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
        redis_arm_deadline(r);
}
