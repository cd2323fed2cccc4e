#include "quota/settlements.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/size.h"
#include "quota/keys.h"
#include "quota/script.h"

#define RETRY_MIN_MS 50
#define RETRY_MAX_MS 2000
/* A burst after Redis came back must leave room for admissions on the same connection. */
#define SENT_MAX 256
/* How long a release without a reservation blocks a late admission of the same request: longer than
 * any command waits in a socket of a server that comes back. */
#define TOMBSTONE_MS 600000

struct settlement {
    struct settlement *next;
    struct settlements *owner;
    struct quota_ask ask;
    int64_t used_tokens;
};

/* One settlement is in exactly one of the two lists. */
struct list {
    struct settlement *head, **tail;
    size_t n;
};

struct settlements {
    struct loop *loop;
    struct redis *redis;
    struct quota_script script;
    size_t max;
    bool is_closed;
    struct list waiting; /* oldest first */
    struct list sent;    /* in the order of their answers */
    struct loop_timer retry_timer;
    int64_t retry_ms;
};

static void list_append(struct list *l, struct settlement *t)
{
    t->next = NULL;
    *l->tail = t;
    l->tail = &t->next;
    l->n++;
}

static struct settlement *list_take(struct list *l)
{
    struct settlement *t = l->head;

    l->head = t->next;
    if (l->head == NULL)
        l->tail = &l->head;
    l->n--;
    return t;
}

static void list_remove(struct list *l, struct settlement *t)
{
    struct settlement **at = &l->head;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    if (l->tail == &t->next)
        l->tail = at;
    l->n--;
}

static void free_if_idle(struct settlements *s)
{
    if (s->sent.n > 0)
        return;
    quota_script_dispose(&s->script);
    free(s);
}

static void send_waiting(struct settlements *s);

static void on_settled(void *arg, const struct redis_answer *a)
{
    struct settlement *t = arg;
    struct settlements *s = t->owner;

    list_remove(&s->sent, t);
    if (s->is_closed) {
        free(t);
        free_if_idle(s);
        return;
    }
    if (a->status != ST_TIMEOUT && a->status != ST_UNAVAILABLE) {
        /* ST_INTERNAL is a fault of the script, logged there: sending it again would not help. */
        free(t);
        s->retry_ms = RETRY_MIN_MS;
        send_waiting(s);
        return;
    }
    list_append(&s->waiting, t);
    if (!s->retry_timer.armed) {
        loop_timer_start(s->loop, &s->retry_timer, s->retry_ms);
        s->retry_ms = int64_min(s->retry_ms * 2, RETRY_MAX_MS);
    }
}

static void send(struct settlements *s, struct settlement *t)
{
    struct quota_words w;

    quota_words_init(&w, &t->ask);
    quota_words_add_id(&w, &t->ask.request);
    quota_words_add_int(&w, t->used_tokens);
    quota_words_add_int(&w, TOMBSTONE_MS);
    quota_words_add_limits(&w, &t->ask);
    list_append(&s->sent, t);
    redis_eval(s->redis, &s->script.redis, w.keys, QUOTA_KEYS, w.args, w.n_args, on_settled, t);
}

/* Nothing is sent while a retry is due later, or the connection is known to be gone. */
static void send_waiting(struct settlements *s)
{
    while (!s->retry_timer.armed && s->waiting.n > 0 && s->sent.n < SENT_MAX)
        send(s, list_take(&s->waiting));
}

static void on_retry(void *arg)
{
    struct settlements *s = arg;

    if (redis_is_connected(s->redis))
        send_waiting(s);
    else
        loop_timer_start(s->loop, &s->retry_timer, RETRY_MIN_MS);
}

enum status settlements_new(struct loop *loop, struct redis *redis, size_t max,
                            struct settlements **out)
{
    struct settlements *s = calloc(1, sizeof *s);
    enum status st;

    if (s == NULL)
        return ST_NO_MEMORY;
    st = quota_script_init(&s->script, "quota/settle.lua");
    if (st != ST_OK) {
        quota_script_dispose(&s->script);
        free(s);
        return st;
    }
    s->loop = loop;
    s->redis = redis;
    s->max = max;
    s->waiting.tail = &s->waiting.head;
    s->sent.tail = &s->sent.head;
    s->retry_timer = (struct loop_timer){.on_timer = on_retry, .arg = s};
    s->retry_ms = RETRY_MIN_MS;
    *out = s;
    return ST_OK;
}

void settlements_free(struct settlements *s)
{
    if (s == NULL)
        return;
    if (s->waiting.n + s->sent.n > 0)
        log_warn(NULL, "quota.unsettled", "waiting=%zu sent=%zu", s->waiting.n, s->sent.n);
    while (s->waiting.n > 0)
        free(list_take(&s->waiting));
    loop_timer_stop(s->loop, &s->retry_timer);
    s->is_closed = true;
    free_if_idle(s);
}

void settlements_add(struct settlements *s, const struct quota_ask *ask, int64_t used_tokens)
{
    struct settlement *t = calloc(1, sizeof *t);

    if (t == NULL) {
        log_error(NULL, "quota.settle", "out of memory: a reservation is left to expire");
        return;
    }
    if (s->waiting.n >= s->max) {
        log_warn(NULL, "quota.settle", "more than %zu wait: the oldest is left to expire", s->max);
        free(list_take(&s->waiting));
    }
    t->owner = s;
    t->ask = *ask;
    t->used_tokens = int64_max(-1, int64_min(used_tokens, QUOTA_LIMIT_MAX));
    list_append(&s->waiting, t);
    send_waiting(s);
}

size_t settlements_count(const struct settlements *s)
{
    return s->waiting.n + s->sent.n;
}
