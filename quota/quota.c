#include "quota/quota.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/size.h"
#include "quota/keys.h"
#include "quota/script.h"
#include "quota/settlements.h"

/* 300 bytes each. At 100 requests a second, ten minutes without Redis. */
#define UNSETTLED_MAX 65536
/* A reservation outlives its slot by as long as its settlement may have to wait for Redis. */
#define SETTLE_GRACE_MS 600000
#define EXACT_INT_MAX   ((INT64_C(1) << 53) - 1)

struct quota {
    struct loop *loop;
    struct redis *redis;
    struct quota_script admit;
    struct settlements *settlements;
    size_t n_out; /* reservations waiting for their answer */
    bool is_closed;
};

struct reserve {
    struct quota *quota;
    struct quota_ask ask;
    bool may_be_sent;
    void (*on_grant)(void *arg, const struct quota_grant *g);
    void *arg;
};

/* admit.lua's and settle.lua's order of limits. */
static const char *const limit_names[1 + QUOTA_LIMITS] = {
    NULL,
    "requests per min (tenant)",
    "tokens per min (tenant)",
    "concurrent requests (tenant)",
    "requests per min (project)",
    "tokens per min (project)",
    "concurrent requests (project)",
    "requests per min (key)",
    "tokens per min (key)",
    "concurrent requests (key)",
};

enum { ANSWER_VALUES = 9 };

static void quota_free(struct quota *q)
{
    settlements_free(q->settlements);
    quota_script_dispose(&q->admit);
    free(q);
}

enum status quota_open(struct loop *loop, struct redis *redis, struct quota **out)
{
    struct quota *q = calloc(1, sizeof *q);
    enum status s;

    if (q == NULL)
        return ST_NO_MEMORY;
    q->loop = loop;
    q->redis = redis;
    s = quota_script_init(&q->admit, "quota/admit.lua");
    if (s == ST_OK)
        s = settlements_new(loop, redis, UNSETTLED_MAX, &q->settlements);
    if (s != ST_OK) {
        quota_free(q);
        return s;
    }
    *out = q;
    return ST_OK;
}

/* Commands that are out still point to the script: the memory goes with the last answer. */
void quota_close(struct quota *q)
{
    if (q == NULL)
        return;
    q->is_closed = true;
    if (q->n_out == 0)
        quota_free(q);
}

/* ---- reserve ---- */

static int64_t ms_of_us(int64_t us)
{
    return (us + 999) / 1000;
}

static struct quota_state state_of(const struct redis_value *v)
{
    return (struct quota_state){
        .limit = v[0].integer, .remaining = v[1].integer, .reset_ms = ms_of_us(v[2].integer)};
}

static bool is_well_formed(const struct redis_answer *a)
{
    if (a->n_values != ANSWER_VALUES)
        return false;
    for (size_t i = 0; i < a->n_values; i++)
        if (!a->values[i].is_integer)
            return false;
    return a->values[0].integer >= 0 && a->values[0].integer <= 3 && a->values[1].integer >= 0 &&
           a->values[1].integer <= QUOTA_LIMITS;
}

static struct quota_grant grant_of(const struct redis_answer *a)
{
    /* by admit.lua's code; the last: this request was given up before its admission arrived */
    static const enum status statuses[] = {ST_OK, ST_LIMITED, ST_TOO_LARGE, ST_UNAVAILABLE};
    struct quota_grant g = {.status = ST_UNAVAILABLE};

    if (a->status != ST_OK)
        return g;
    if (!is_well_formed(a)) {
        log_error(NULL, "quota.answer", "admit.lua gave %zu values", a->n_values);
        return g;
    }
    g.status = statuses[a->values[0].integer];
    g.refused = limit_names[a->values[1].integer];
    g.retry_after_ms = ms_of_us(a->values[2].integer);
    g.requests = state_of(&a->values[3]);
    g.tokens = state_of(&a->values[6]);
    return g;
}

static void on_admitted(void *arg, const struct redis_answer *a)
{
    struct reserve *r = arg;
    struct quota *q = r->quota;
    struct quota_grant g = grant_of(a);

    /* Without an answer it is unknown whether Redis took the reservation (a frozen one will, when
     * it wakes): it is given back. */
    if (a->status != ST_OK && r->may_be_sent && !q->is_closed)
        settlements_add(q->settlements, &r->ask, -1);
    r->on_grant(r->arg, &g);
    free(r);
    q->n_out--;
    if (q->is_closed && q->n_out == 0)
        quota_free(q);
}

static int64_t tokens_of(const struct quota_ask *ask)
{
    int64_t sum;

    if (__builtin_add_overflow(ask->prompt_tokens, ask->output_tokens, &sum))
        return EXACT_INT_MAX;
    return int64_min(sum, EXACT_INT_MAX);
}

void quota_reserve(struct quota *q, const struct quota_ask *ask,
                   void (*on_grant)(void *arg, const struct quota_grant *g), void *arg)
{
    struct reserve *r = calloc(1, sizeof *r);
    struct quota_words w;

    assert(r != NULL); /* without memory for it the promised callback can never come */
    assert(ask->prompt_tokens >= 0 && ask->output_tokens >= 0);
    *r = (struct reserve){.quota = q,
                          .ask = *ask,
                          .may_be_sent = redis_is_connected(q->redis),
                          .on_grant = on_grant,
                          .arg = arg};
    q->n_out++;
    quota_words_init(&w, ask);
    quota_words_add_id(&w, &ask->request);
    quota_words_add_int(&w, tokens_of(ask));
    quota_words_add_int(&w, ask->slot_deadline_ms);
    quota_words_add_int(&w, ask->slot_deadline_ms + SETTLE_GRACE_MS);
    quota_words_add_limits(&w, ask);
    redis_eval(q->redis, &q->admit.redis, w.keys, QUOTA_KEYS, w.args, w.n_args, on_admitted, r);
}

/* ---- settle ---- */

void quota_settle(struct quota *q, const struct quota_ask *ask, int64_t used_tokens)
{
    settlements_add(q->settlements, ask, used_tokens);
}

size_t quota_unsettled(const struct quota *q)
{
    return settlements_count(q->settlements);
}
