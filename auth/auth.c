#include "auth/auth.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "auth/changes.h"
#include "auth/directory.h"
#include "auth/keys.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/size.h"

/* How long "there is no such key" is believed: made-up keys cost Postgres one question a second
 * each, and a key made a moment ago works. */
#define ABSENT_MS 1000
/* A lookup that a change overtook asks again; so often only if an administrator never stops. */
#define LOOKUP_TRIES 5

struct auth {
    struct auth_config cfg;
    char *conninfo, *pepper;
    char pepper_id[PEPPER_ID_CHARS + 1];
    struct changes *changes;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    /* under lock: */
    struct directory directory;
    bool is_following;
    int64_t followed_ms; /* what is cached was true then; 0: never */
};

/* ---- deciding ---- */

static void refuse(struct auth_check *c, enum status s, const char *text)
{
    c->status = fail(&c->reason, s, "%s", text);
}

static void refuse_unknown(struct auth_check *c)
{
    refuse(c, ST_UNAUTHENTICATED, "Incorrect API key provided.");
}

static void refuse_away(struct auth_check *c)
{
    refuse(c, ST_UNAVAILABLE, "API keys can't be checked at the moment, try again later.");
}

/* What holds for the caller is compared at each use, not when the record was loaded. */
static void decide(struct auth_check *c, const struct key_record *k, int64_t wall_ms)
{
    const struct {
        bool is_true;
        const char *text;
    } refusals[] = {
        {k->key_disabled, "This API key is disabled."},
        {k->expires_at_ms != 0 && k->expires_at_ms <= wall_ms, "This API key has expired."},
        {k->project_disabled, "This API key's project is disabled."},
        {k->tenant_disabled, "This API key's account is disabled."},
    };

    if (!key_mac_equal(k->mac, c->mac)) {
        refuse_unknown(c);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        if (refusals[i].is_true) {
            refuse(c, ST_UNAUTHENTICATED, refusals[i].text);
            return;
        }
    }
    c->status = ST_OK;
    c->principal = k->principal;
}

/* A refusal for want of a key takes as long as one for a wrong secret. */
static void decide_absent(struct auth_check *c)
{
    static const struct key_record nobody = {.mac = {0}};

    decide(c, &nobody, 0);
    refuse_unknown(c);
}

/* ---- lookups, on the pool's threads ---- */

static void on_message(struct loop_message *m)
{
    struct auth_check *c = CONTAINER_OF(m, struct auth_check, message);

    c->on_done(c);
}

struct outcome {
    enum status status;
    bool found;
    struct key_record record;
    int64_t wall_ms;
};

/* After the post the check may be gone. */
static void tell(struct auth_check *c, const struct outcome *o)
{
    if (o->status != ST_OK)
        refuse_away(c);
    else if (o->found)
        decide(c, &o->record, o->wall_ms);
    else
        decide_absent(c);
    c->message.on_message = on_message;
    loop_post(c->loop, &c->message);
}

/* Ends the entry's loading and takes its waiters. Judged under the lock that publishes it: a change
 * that was applied while Postgres was asked must not be undone by the older answer. False: ask
 * again. */
static bool publish(struct auth *a, struct directory_entry *e, const struct outcome *o,
                    int64_t position, struct auth_check **waiters)
{
    bool is_current;

    pthread_mutex_lock(&a->lock);
    is_current = o->status != ST_OK || directory_is_current(&a->directory, e, position);
    if (is_current) {
        *waiters = e->waiters;
        e->waiters = NULL;
        if (o->status == ST_OK)
            directory_finish(&a->directory, e, o->found ? &o->record : NULL, clock_mono_ms());
        else
            directory_remove(&a->directory, e);
        pthread_cond_signal(&a->idle);
    }
    pthread_mutex_unlock(&a->lock);
    return is_current;
}

static void warn_of_pepper(const struct auth *a, const struct outcome *o)
{
    if (o->status == ST_OK && o->found && strcmp(o->record.pepper_id, a->pepper_id) != 0)
        log_warn(NULL, "auth.pepper", "key=%s was made under another pepper",
                 o->record.principal.key_public_id);
}

/* `w` is in the check that came first; the entry stays loading until publish. */
static void on_lookup(struct work *w, void *thread_state)
{
    struct auth_check *c = CONTAINER_OF(w, struct auth_check, work), *next;
    struct auth *a = c->auth;
    struct directory_entry *e = c->entry;
    struct outcome o = {.status = ST_OK};
    int64_t position = 0;
    int tries = 0;

    do {
        o.status = ST_UNAVAILABLE;
        if (tries++ < LOOKUP_TRIES)
            o.status = lookup_key(thread_state, c->public_id, &o.found, &o.record, &position);
        warn_of_pepper(a, &o);
    } while (!publish(a, e, &o, position, &c));
    o.wall_ms = clock_wall_ms();
    for (; c != NULL; c = next) {
        next = c->next_waiter;
        tell(c, &o);
    }
}

/* ---- the check ---- */

static bool start_lookup(struct auth *a, struct auth_check *c)
{
    struct directory_entry *e;

    if (!a->is_following) {
        refuse_away(c);
        return true;
    }
    e = directory_start(&a->directory, c->public_id);
    if (e == NULL) {
        refuse_away(c);
        return true;
    }
    c->entry = e;
    c->work.on_run = on_lookup;
    if (pg_pool_submit(a->cfg.pool, &c->work) != ST_OK) {
        directory_remove(&a->directory, e);
        refuse_away(c);
        return true;
    }
    e->waiters = c;
    return false;
}

/* Under the lock. */
static bool check_cached(struct auth *a, struct auth_check *c, int64_t now_ms, int64_t wall_ms)
{
    struct directory_entry *e = directory_find(&a->directory, c->public_id);

    if (e != NULL && e->state == ENTRY_LOADING) {
        c->next_waiter = e->waiters;
        e->waiters = c;
        return false;
    }
    if (e != NULL && e->state == ENTRY_ABSENT && now_ms - e->loaded_ms < ABSENT_MS) {
        decide_absent(c);
        return true;
    }
    if (e != NULL && e->state == ENTRY_PRESENT && now_ms - a->followed_ms <= a->cfg.stale_max_ms) {
        decide(c, &e->record, wall_ms);
        return true;
    }
    if (e != NULL)
        directory_remove(&a->directory, e);
    return start_lookup(a, c);
}

bool auth_check(struct auth *a, struct auth_check *c, const char *credential, size_t len,
                int64_t wall_ms)
{
    const char *public_id, *secret;
    size_t public_id_len, secret_len;
    bool is_decided;

    c->status = ST_INTERNAL;
    c->next_waiter = NULL;
    c->auth = a;
    if (!key_parse(credential, len, &public_id, &public_id_len, &secret, &secret_len)) {
        refuse_unknown(c);
        return true;
    }
    memcpy(c->public_id, public_id, public_id_len);
    c->public_id[public_id_len] = '\0';
    key_mac(a->pepper, secret, secret_len, c->mac);
    pthread_mutex_lock(&a->lock);
    is_decided = check_cached(a, c, clock_mono_ms(), wall_ms);
    pthread_mutex_unlock(&a->lock);
    return is_decided;
}

/* ---- the change log ---- */

static void on_key(void *arg, const char *public_id, int64_t position)
{
    struct auth *a = arg;

    pthread_mutex_lock(&a->lock);
    directory_forget_key(&a->directory, public_id, position);
    pthread_mutex_unlock(&a->lock);
}

static void on_tenant(void *arg, int64_t tenant_id, int64_t position)
{
    struct auth *a = arg;

    pthread_mutex_lock(&a->lock);
    directory_forget_tenant(&a->directory, tenant_id, position);
    pthread_mutex_unlock(&a->lock);
}

static void on_anything(void *arg)
{
    struct auth *a = arg;

    pthread_mutex_lock(&a->lock);
    directory_forget_all(&a->directory);
    pthread_mutex_unlock(&a->lock);
}

static void on_followed(void *arg, int64_t asked_ms)
{
    struct auth *a = arg;

    pthread_mutex_lock(&a->lock);
    a->is_following = true;
    a->followed_ms = asked_ms;
    pthread_mutex_unlock(&a->lock);
}

static void on_lost(void *arg)
{
    struct auth *a = arg;

    pthread_mutex_lock(&a->lock);
    a->is_following = false;
    pthread_mutex_unlock(&a->lock);
}

void auth_cache_salt(const struct auth *a, int64_t tenant_id, uint8_t out[CACHE_SALT_BYTES])
{
    key_cache_salt(a->pepper, tenant_id, out);
}

/* ---- life ---- */

static void auth_free(struct auth *a)
{
    directory_dispose(&a->directory);
    pthread_cond_destroy(&a->idle);
    pthread_mutex_destroy(&a->lock);
    free(a->conninfo);
    if (a->pepper != NULL)
        OPENSSL_cleanse(a->pepper, strlen(a->pepper));
    free(a->pepper);
    free(a);
}

static enum status init(struct auth *a, const struct auth_config *cfg)
{
    const struct change_sink sink = {.arg = a,
                                     .on_key = on_key,
                                     .on_tenant = on_tenant,
                                     .on_anything = on_anything,
                                     .on_followed = on_followed,
                                     .on_lost = on_lost};
    uint64_t seed;
    enum status s;

    random_bytes(&seed, sizeof seed);
    s = directory_init(&a->directory, cfg->cache_max, seed);
    a->cfg = *cfg;
    a->conninfo = strdup(cfg->conninfo);
    a->pepper = strdup(cfg->pepper);
    if (s != ST_OK || a->conninfo == NULL || a->pepper == NULL)
        return ST_NO_MEMORY;
    key_pepper_id(a->pepper, a->pepper_id);
    return changes_start(a->conninfo, cfg->poll_ms, &sink, &a->changes);
}

enum status auth_open(const struct auth_config *cfg, struct auth **out, struct reason *why)
{
    struct auth *a;
    enum status s;

    if (!key_pepper_is_valid(cfg->pepper))
        return fail(why, ST_INVALID, "the pepper must be at least %d hex digits", PEPPER_CHARS_MIN);
    a = calloc(1, sizeof *a);
    if (a == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->idle, NULL);
    s = init(a, cfg);
    if (s != ST_OK) {
        auth_free(a);
        return fail(why, s, "%s", status_text(s));
    }
    *out = a;
    return ST_OK;
}

void auth_close(struct auth *a)
{
    if (a == NULL)
        return;
    changes_stop(a->changes);
    pthread_mutex_lock(&a->lock);
    while (a->directory.lists[ENTRY_LOADING].n > 0)
        pthread_cond_wait(&a->idle, &a->lock);
    pthread_mutex_unlock(&a->lock);
    auth_free(a);
}

bool auth_is_ready(const struct auth *a_)
{
    /* The lock is no part of what the caller sees as constant. */
    struct auth *a = (struct auth *)(uintptr_t)a_;
    bool yes;

    pthread_mutex_lock(&a->lock);
    yes = a->is_following;
    pthread_mutex_unlock(&a->lock);
    return yes;
}
