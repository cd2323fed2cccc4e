/* The change from one revision of a model to the next, without a pause.
 *
 * It begins when an engine hands over to another one, or when the engine at the path has another
 * model than this side. A thread of its own reads the model's settings and file anew; every loop
 * opens a link of the new revision at the socket's path beside the old one's; when an engine has
 * greeted all of them, requests get the new revision from then on. The old one's links stay until
 * the last request that holds it has ended; then the old engine sees its last gateway leave.
 *
 * A change that fails leaves all as it was and is tried again, later each time: the old engine goes
 * on as long as it can.
 *
 * The first revision of a model whose file could not be opened at the start comes the same way, but
 * waits for no engine. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/engine_state.h"

#define BACKOFF_MIN_MS 1000
#define BACKOFF_MAX_MS 60000
/* For the new engine to greet all loops: it answers between two steps, and listens already. */
#define GREETING_MS 30000

struct swap {
    struct engine *engine;
    enum status (*reload)(void *reload_arg, const char *id, struct engine_reload *to,
                          struct reason *why);
    void *reload_arg;
    pthread_t thread;
    pthread_cond_t wake;
    bool is_woken, is_stopping; /* under engine.lock */
};

/* ---- from loops ---- */

void swap_wake(struct engine *e)
{
    if (e->swap == NULL)
        return;
    e->swap->is_woken = true;
    pthread_cond_signal(&e->swap->wake);
}

/* One that waits after a failure isn't hastened by a link that finds the same engine again and
 * again; by a handover it is, but for the frames of the one that failed just now. */
static void want(struct served_model *m, enum backend_event what)
{
    if (m->is_wanted && what == BACKEND_MISMATCH)
        return;
    m->due_ms = m->is_wanted ? int64_min(m->due_ms, clock_mono_ms() + BACKOFF_MIN_MS) : 0;
    m->is_wanted = true;
    m->wanted_for = what;
}

/* The engine has come back with what we have. */
static void forget_wish(struct served_model *m)
{
    m->is_wanted = false;
    m->trouble[0] = '\0';
    m->backoff_ms = BACKOFF_MIN_MS;
}

/* The frames of one handover come on every loop's link. While a change is on its way, those of the
 * old engine are of the handover that caused it. */
static void on_event_of_current(struct served_model *m, enum backend_event what)
{
    if (m->next != NULL || m->is_opening) {
        if (what != BACKEND_HANDOVER)
            m->is_healed = what == BACKEND_GREETED;
        return;
    }
    if (what != BACKEND_GREETED)
        want(m, what);
    else if (m->is_wanted && m->wanted_for == BACKEND_MISMATCH)
        forget_wish(m);
}

void swap_on_event(struct served_revision *r, enum backend_event what)
{
    struct served_model *m = r->of;

    if (m->engine->swap == NULL)
        return;
    if (r == m->current)
        on_event_of_current(m, what);
    else if (r == m->next && what == BACKEND_HANDOVER)
        m->is_wanted_again = true;
    else if (r == m->next && what == BACKEND_MISMATCH)
        m->is_next_refused = true;
    swap_wake(m->engine);
}

/* ---- the end of a change; under the lock ---- */

static void fail_change(struct served_model *m, const char *why)
{
    if (m->wanted_for == BACKEND_MISMATCH && m->is_healed) {
        forget_wish(m);
        return;
    }
    m->is_wanted = true;
    m->due_ms = clock_mono_ms() + m->backoff_ms;
    snprintf(m->trouble, sizeof m->trouble, "%s", why);
    log_error(NULL, "engine.swap", "model=%s again_ms=%lld: %s", m->pub.id,
              (long long)m->backoff_ms, why);
    m->backoff_ms = int64_min(m->backoff_ms * 2, BACKOFF_MAX_MS);
}

static void let_go(struct served_revision *r)
{
    if (revision_drop(r))
        links_tell(r->of->engine);
}

static void give_up(struct served_model *m)
{
    struct served_revision *next = m->next;

    m->next = NULL;
    let_go(next);
    fail_change(m, m->is_next_refused
                       ? "the engine has another model than the file, or less context"
                       : "the engine does not greet");
}

static void publish(struct served_model *m)
{
    struct served_revision *old = m->current;

    m->current = m->next;
    m->next = NULL;
    m->current->phase = REVISION_CURRENT;
    m->trouble[0] = '\0';
    m->backoff_ms = BACKOFF_MIN_MS;
    m->is_wanted = m->is_wanted_again;
    m->wanted_for = BACKEND_HANDOVER;
    m->due_ms = 0;
    log_info(NULL, "engine.swap", "model=%s revision=%.12s before=%.12s", m->pub.id,
             m->current->pub.hex, old != NULL ? old->pub.hex : "none");
    if (old == NULL) {
        links_tell(m->engine); /* claims wait for it */
        return;
    }
    old->phase = REVISION_OLD;
    let_go(old);
}

/* ---- the beginning ---- */

struct opening {
    struct engine_reload super;
    struct served_model *model;
    struct served_revision *revision;
};

static enum status take(struct engine_reload *to, const struct engine_model_config *cfg,
                        struct reason *why)
{
    struct opening *o = CONTAINER_OF(to, struct opening, super);

    return revision_open(o->model, cfg, &o->revision, why);
}

/* Under the lock, but for the reading. */
static void begin(struct swap *s, struct served_model *m)
{
    struct engine *e = s->engine;
    struct opening o = {.super.take = take, .model = m};
    struct reason why = {0};
    enum status st;

    m->is_wanted = m->is_wanted_again = m->is_next_refused = m->is_healed = false;
    m->is_opening = true;
    pthread_mutex_unlock(&e->lock);
    st = s->reload(s->reload_arg, m->pub.id, &o.super, &why);
    pthread_mutex_lock(&e->lock);
    m->is_opening = false;
    if (st != ST_OK) {
        fail_change(m, why.text[0] != '\0' ? why.text : status_text(st));
        return;
    }
    assert(o.revision != NULL); /* take was called */
    m->next = o.revision;
    m->give_up_ms = clock_mono_ms() + GREETING_MS;
    revision_add(m->next, REVISION_NEXT);
    links_tell(e);
}

/* ---- the thread ---- */

/* The next revision can have the requests. The first one only needs the loops' links: where none
 * was before, an engine that is away is no reason to wait. */
static bool is_prepared(const struct swap *s, const struct served_model *m)
{
    const struct served_revision *next = m->next;

    return (m->current != NULL ? next->n_greeted : next->n_links) == s->engine->n_links;
}

/* Under the lock. Returns when it is to be looked at again; INT64_MAX: when something happens. */
static int64_t step(struct swap *s, struct served_model *m)
{
    int64_t now_ms = clock_mono_ms();

    if (m->next != NULL && is_prepared(s, m))
        publish(m);
    else if (m->next != NULL && (m->is_next_refused || now_ms >= m->give_up_ms))
        give_up(m);
    if (m->next == NULL && m->is_wanted && now_ms >= m->due_ms)
        begin(s, m);
    if (m->next != NULL)
        return m->give_up_ms;
    return m->is_wanted ? m->due_ms : INT64_MAX;
}

static struct served_revision *take_gone(struct served_model *m)
{
    struct served_revision **at = &m->revisions, *r;

    while (*at != NULL && ((*at)->phase != REVISION_GONE || (*at)->n_links > 0))
        at = &(*at)->next;
    r = *at;
    if (r != NULL)
        *at = r->next;
    return r;
}

/* A vocabulary is many thousand pieces of memory. */
static void free_gone(struct engine *e, struct served_model *m)
{
    struct served_revision *r;

    while ((r = take_gone(m)) != NULL) {
        pthread_mutex_unlock(&e->lock);
        revision_free(r);
        pthread_mutex_lock(&e->lock);
    }
}

static void wait_until(struct swap *s, int64_t due_ms)
{
    const struct timespec until = {.tv_sec = due_ms / 1000, .tv_nsec = due_ms % 1000 * 1000000L};
    int rc = 0;

    while (!s->is_woken && rc == 0)
        rc = due_ms == INT64_MAX ? pthread_cond_wait(&s->wake, &s->engine->lock)
                                 : pthread_cond_timedwait(&s->wake, &s->engine->lock, &until);
    s->is_woken = false;
}

static void *run(void *arg)
{
    struct swap *s = arg;
    struct engine *e = s->engine;

    pthread_mutex_lock(&e->lock);
    while (!s->is_stopping) {
        int64_t due_ms = INT64_MAX;

        for (size_t i = 0; i < e->n_models && !s->is_stopping; i++) {
            due_ms = int64_min(due_ms, step(s, &e->models[i]));
            free_gone(e, &e->models[i]);
        }
        wait_until(s, due_ms);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void init_wake(pthread_cond_t *wake)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(wake, &attr);
    pthread_condattr_destroy(&attr);
}

enum status swap_start(struct engine *e, const struct engine_config *cfg)
{
    struct swap *s = calloc(1, sizeof *s);

    if (s == NULL)
        return ST_NO_MEMORY;
    s->engine = e;
    s->reload = cfg->reload;
    s->reload_arg = cfg->reload_arg;
    init_wake(&s->wake);
    for (size_t i = 0; i < e->n_models; i++) {
        e->models[i].backoff_ms = BACKOFF_MIN_MS;
        e->models[i].is_wanted = e->models[i].current == NULL;
    }
    e->swap = s;
    if (pthread_create(&s->thread, NULL, run, s) == 0) {
        pthread_setname_np(s->thread, "swap");
        return ST_OK;
    }
    e->swap = NULL;
    pthread_cond_destroy(&s->wake);
    free(s);
    return ST_NO_MEMORY;
}

void swap_stop(struct engine *e)
{
    struct swap *s = e->swap;

    if (s == NULL)
        return;
    pthread_mutex_lock(&e->lock);
    s->is_stopping = true;
    swap_wake(e);
    pthread_mutex_unlock(&e->lock);
    pthread_join(s->thread, NULL);
    e->swap = NULL;
    pthread_cond_destroy(&s->wake);
    free(s);
}
