/* Between redis.c and redis_command.c only. */
#ifndef STORE_REDIS_PRIVATE_H
#define STORE_REDIS_PRIVATE_H

#include <hiredis/async.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "store/redis.h"

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

static inline void ring_init(struct command *ring)
{
    ring->prev = ring->next = ring;
}

static inline bool ring_is_empty(const struct command *ring)
{
    return ring->next == ring;
}

/* For the first of `pending`; none: no timer. */
void redis_arm_deadline(struct redis *r);
/* Gives the answers that are in `done` now; arg is the struct redis. */
void redis_deliver(void *arg);

#endif
