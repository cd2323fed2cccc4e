/* May they, now: requests/min, tokens/min and concurrency, for key, project and tenant at once.
 *
 * One Lua call to Redis decides all limits, all or nothing: a refusal consumes nothing. Rates are
 * token buckets in integers on Redis's clock (in any interval t at most capacity + rate * t); they
 * reserve prompt + reserved output and settle to what was used (debt allowed). Concurrency slots
 * are members of a sorted set with a deadline: crashes heal, a double release is harmless. All keys
 * of a tenant share the hash tag {tenant}; the layout carries a version. No floats here.
 *
 * Redis away: ST_UNAVAILABLE (mode "closed"). A struct quota belongs to one loop. */
#ifndef QUOTA_QUOTA_H
#define QUOTA_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/loop.h"
#include "base/status.h"
#include "store/redis.h"

struct quota;

struct quota_limits { /* 0: none */
    int64_t requests_per_min;
    int64_t tokens_per_min;
    int64_t concurrency;
};

struct quota_ask {
    struct id request;
    int64_t tenant_id, project_id, key_id;
    struct quota_limits tenant, project, key;
    int64_t prompt_tokens;
    int64_t output_tokens;    /* reserved */
    int64_t slot_deadline_ms; /* how long a concurrency slot lives without release */
};

/* The tightest limit of each kind, for the x-ratelimit headers; limit 0: there is none. */
struct quota_state {
    int64_t limit, remaining, reset_ms;
};

struct quota_grant {
    enum status status; /* ST_OK; ST_LIMITED; ST_TOO_LARGE (could never pass: over the bucket's
                           capacity); ST_UNAVAILABLE */
    struct quota_state requests, tokens; /* remaining after this request */
    const char *refused; /* "requests per min (key)", …: static; NULL when granted */
    int64_t retry_after_ms;
};

MUST_CHECK enum status quota_open(struct loop *loop, struct redis *redis, struct quota **out);
void quota_close(struct quota *q); /* NULL is fine */

/* on_grant comes exactly once, never from inside; *g is borrowed. */
void quota_reserve(struct quota *q, const struct quota_ask *ask,
                   void (*on_grant)(void *arg, const struct quota_grant *g), void *arg);

/* The end of a granted request: returns the difference of reserved and used to the token buckets
 * (idempotent by request id: a second settle changes nothing), and the slots. `used_tokens` < 0:
 * the request never reached the engine: everything is returned, the request count too. Kept and
 * sent again (bounded, in memory) while Redis is away. The limits in `ask` must be those of the
 * reservation. */
void quota_settle(struct quota *q, const struct quota_ask *ask, int64_t used_tokens);

/* Settlements not yet acknowledged by Redis. */
size_t quota_unsettled(const struct quota *q);

#endif
