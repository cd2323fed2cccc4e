/* Who is calling: API keys, and a cache of what Postgres says about them.
 *
 * A key is `sk-sluice-<public id>-<secret><checksum>`: public id and secret are base62; the
 * checksum (CRC-32 of what stands before it, base62) refuses typing errors without asking anybody.
 * Only HMAC-SHA-256(pepper, secret) is stored. The cache follows the change log in Postgres, so a
 * disabled or expired key stops within a second on every gateway that reaches Postgres, and after
 * stale_max_ms on one that doesn't. No secret is ever logged. */
#ifndef AUTH_AUTH_H
#define AUTH_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/status.h"
#include "base/worker.h"
#include "store/pg.h"

struct directory_entry;
struct auth; /* shared; own lock around the cache, never held while asking Postgres */

struct auth_limits { /* 0: none */
    int64_t requests_per_min;
    int64_t tokens_per_min;
    int64_t concurrency;
};

enum {
    SCOPE_INFERENCE = 1,
    SCOPE_USAGE = 2,
    SCOPE_PLATFORM = 4,       /* reads all tenants' usage */
    SCOPE_CONTROL_TOKENS = 8, /* raw prompts may hold control tokens */
    SCOPES_ALL = 15,
};

/* Classes in the engine's queue, above the fairness between tenants. A key's, not a tenant's: what
 * a tenant's users wait for and what runs by night come with different keys of one tenant. */
enum key_priority { KEY_PRIORITY_HIGH, KEY_PRIORITY_NORMAL, KEY_PRIORITY_LOW };

struct principal {
    int64_t tenant_id, project_id, key_id;
    char key_public_id[24];
    uint32_t scopes;
    uint32_t weight;   /* of the tenant in the engine; 1000 is ordinary */
    uint32_t priority; /* of the key's requests: KEY_PRIORITY_HIGH to KEY_PRIORITY_LOW */
    struct auth_limits key, project, tenant;
};

struct auth_config {
    const char *conninfo;
    const char *pepper;   /* secret; at least 32 bytes of hex */
    struct pg_pool *pool; /* lookups on a miss */
    int64_t poll_ms;      /* change log; 500 */
    int64_t stale_max_ms; /* how long cached answers serve while Postgres is away */
    size_t cache_max;     /* principals (and refusals) kept */
};

/* Starts the thread that follows the change log. The pool outlives this, and still runs at
 * auth_close, which waits for lookups that are out. Works while Postgres is away (then nothing is
 * cached). */
MUST_CHECK enum status auth_open(const struct auth_config *cfg, struct auth **out,
                                 struct reason *why);
void auth_close(struct auth *a); /* NULL is fine */
/* Postgres was reached and the change log is being followed. */
bool auth_is_ready(const struct auth *a);

/* An asynchronous check. Caller's heap memory; in: loop, on_done, auth. on_done comes on the loop
 * exactly once, maybe after the client has gone, never from inside auth_check. */
struct auth_check {
    struct loop *loop;
    void (*on_done)(struct auth_check *c);
    enum status
        status; /* ST_OK; ST_UNAUTHENTICATED; ST_UNAVAILABLE (Postgres away and not cached) */
    struct principal principal;
    struct reason reason; /* for the client: "Incorrect API key provided", "expired", … no secret */
    /* private */
    struct auth *auth;
    char public_id[24];
    uint8_t mac[32];
    struct work work;
    struct loop_message message;
    struct auth_check *next_waiter;
    struct directory_entry *entry;
};

/* `credential` is the bearer token (what follows "Bearer "). True: decided from the cache or the
 * shape alone, c->status, c->principal and c->reason are set and on_done will not come. False:
 * on_done will. */
bool auth_check(struct auth *a, struct auth_check *c, const char *credential, size_t len,
                int64_t wall_ms);

/* The secret that keeps a tenant's KV pages apart from all others': HMAC-SHA-256 under the pepper.
 * The same on every gateway with the same pepper. Any thread. */
#define CACHE_SALT_BYTES 32
void auth_cache_salt(const struct auth *a, int64_t tenant_id, uint8_t out[CACHE_SALT_BYTES]);

/* ---- administration, blocking, for the command line ---- */

struct key_spec {
    const char *tenant, *project; /* names; made when missing */
    const char *name;             /* label of the key */
    uint32_t scopes;
    enum key_priority priority;
    struct auth_limits key_limits,
        tenant_limits;    /* the tenant's are set only where given (>= 0); -1: leave */
    int64_t expires_at_s; /* Unix; 0: never */
};
#define KEY_TEXT_BYTES 128
/* Writes the whole key once into out[KEY_TEXT_BYTES] and its public id. */
MUST_CHECK enum status key_create(struct pg *pg, const char *pepper, const struct key_spec *spec,
                                  char *out_key, char *out_public_id, struct reason *why);
/* action: "disable", "enable", "expire" (now). ST_NOT_FOUND. */
MUST_CHECK enum status key_update(struct pg *pg, const char *public_id, const char *action,
                                  struct reason *why);

/* A key as `sluice key list` shows it; borrowed for the call. Nothing of the secret is in it. */
struct key_info {
    const char *public_id, *name, *tenant, *project;
    uint32_t scopes;
    enum key_priority priority;
    struct auth_limits limits;
    const char *state;                   /* "active", "disabled", "expired" */
    const char *created_at, *expires_at; /* RFC 3339, UTC; expires_at may be NULL */
};
/* `tenant`: a name, or NULL for all. In the order of creation. */
MUST_CHECK enum status key_list(struct pg *pg, const char *tenant,
                                void (*on_key)(void *arg, const struct key_info *k), void *arg,
                                struct reason *why);

/* Shape and checksum only. Splits into public id and secret (borrowed from text). */
bool key_parse(const char *text, size_t len, const char **public_id, size_t *public_id_len,
               const char **secret, size_t *secret_len);

#endif
