/* The connections of a loop: one to the engine of every revision that is served or about to be.
 *
 * Which there should be follows from the revisions' phases, which swap.c changes: every loop is
 * then told by a message, and does its part on its own thread (follow). */
#include "engine/links.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/size.h"

/* ---- one link ---- */

bool link_is_in(const struct revision_link *rl, enum revision_phase phase)
{
    struct engine *e = rl->loop->engine;
    bool is;

    pthread_mutex_lock(&e->lock);
    is = rl->revision->phase == phase;
    pthread_mutex_unlock(&e->lock);
    return is;
}

static void note_greeted(struct revision_link *rl)
{
    if (rl->is_greeted)
        return;
    rl->is_greeted = true;
    rl->revision->n_greeted++;
}

static void tell(struct engine_link *l)
{
    if (l->is_told)
        return;
    l->is_told = true;
    loop_post(l->loop, &l->message);
}

static void on_event(void *arg, enum backend_event what)
{
    struct revision_link *rl = arg;
    struct engine *e = rl->loop->engine;

    pthread_mutex_lock(&e->lock);
    if (what == BACKEND_GREETED)
        note_greeted(rl);
    swap_on_event(rl->revision, what);
    if (what == BACKEND_MISMATCH)
        tell(rl->loop); /* a claim on it may have to go elsewhere */
    pthread_mutex_unlock(&e->lock);
}

/* A first revision waits for it. */
static void note_opened(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    swap_wake(e);
    pthread_mutex_unlock(&e->lock);
}

/* The revision's n_links counts it already. */
static enum status open_one(struct engine_link *l, struct served_revision *r)
{
    struct model_links *of = links_of(l, r->pub.model);
    struct revision_link *rl = calloc(1, sizeof *rl);
    enum status s;

    if (rl == NULL)
        return ST_NO_MEMORY;
    rl->loop = l;
    rl->revision = r;
    s = l->engine->backend->link_open(&r->target, l->loop, &rl->backend);
    if (s != ST_OK) {
        free(rl);
        return s;
    }
    rl->backend->on_event = on_event;
    rl->backend->arg = rl;
    rl->next = of->first;
    of->first = rl;
    if (link_is_ready(rl))
        on_event(rl, BACKEND_GREETED);
    note_opened(l->engine);
    return ST_OK;
}

/* Its jobs end, from inside. */
static void close_one(struct revision_link *rl)
{
    struct engine *e = rl->loop->engine;
    struct served_revision *r = rl->revision;

    rl->backend->ops->link_close(rl->backend);
    pthread_mutex_lock(&e->lock);
    r->n_links--;
    r->n_greeted -= rl->is_greeted;
    swap_wake(e);
    pthread_mutex_unlock(&e->lock);
    free(rl);
}

/* ---- what the phases ask for ---- */

static void close_gone(struct model_links *of)
{
    struct revision_link **at = &of->first;

    while (*at != NULL) {
        struct revision_link *rl = *at;

        if (!link_is_in(rl, REVISION_GONE)) {
            at = &rl->next;
            continue;
        }
        *at = rl->next;
        close_one(rl);
    }
}

/* The current revision or the next one, where this loop has no link of it yet; it counts the link.
 * NULL: none is missing. */
static struct served_revision *take_missing(struct engine_link *l, struct served_model *m)
{
    struct served_revision *missing = NULL, *r;

    pthread_mutex_lock(&l->engine->lock);
    for (r = m->revisions; r != NULL && missing == NULL; r = r->next)
        if (r->phase <= REVISION_CURRENT && links_find(l, &r->pub) == NULL)
            missing = r;
    if (missing != NULL)
        missing->n_links++;
    pthread_mutex_unlock(&l->engine->lock);
    return missing;
}

static void uncount(struct served_revision *r)
{
    struct engine *e = r->of->engine;

    pthread_mutex_lock(&e->lock);
    r->n_links--;
    swap_wake(e);
    pthread_mutex_unlock(&e->lock);
}

static enum status open_missing(struct engine_link *l, struct served_model *m)
{
    struct served_revision *r;

    while ((r = take_missing(l, m)) != NULL) {
        enum status s = open_one(l, r);

        if (s == ST_OK)
            continue;
        uncount(r);
        return s;
    }
    return ST_OK;
}

static enum status follow(struct engine_link *l)
{
    enum status s = ST_OK;

    for (size_t i = 0; s == ST_OK && i < l->engine->n_models; i++) {
        close_gone(&l->models[i]);
        s = open_missing(l, &l->engine->models[i]);
        links_move_claim(l, &l->models[i]);
    }
    return s;
}

/* ---- being told ---- */

static void add(struct engine_link **list, struct engine_link *l)
{
    l->prev = NULL;
    l->next = *list;
    if (*list != NULL)
        (*list)->prev = l;
    *list = l;
}

static void take_out(struct engine_link **list, struct engine_link *l)
{
    if (l->prev != NULL)
        l->prev->next = l->next;
    else
        *list = l->next;
    if (l->next != NULL)
        l->next->prev = l->prev;
}

static void on_message(struct loop_message *m)
{
    struct engine_link *l = CONTAINER_OF(m, struct engine_link, message);
    struct engine *e = l->engine;
    enum status s;
    bool is_closed;

    pthread_mutex_lock(&e->lock);
    l->is_told = false;
    is_closed = l->is_closed;
    if (is_closed)
        take_out(&e->unread, l);
    pthread_mutex_unlock(&e->lock);
    if (is_closed) {
        free(l);
        return;
    }
    s = follow(l);
    if (s != ST_OK) /* the change is given up when its time is over */
        log_error(NULL, "engine.swap", "no link to a new engine: %s", status_text(s));
}

void links_tell(struct engine *e)
{
    for (struct engine_link *l = e->links; l != NULL; l = l->next)
        tell(l);
}

void links_free_unread(struct engine *e)
{
    struct engine_link *next;

    assert(e->links == NULL);
    for (struct engine_link *l = e->unread; l != NULL; l = next) {
        next = l->next;
        free(l);
    }
    e->unread = NULL;
}

/* ---- all links of a loop ---- */

static void enlist(struct engine_link *l)
{
    struct engine *e = l->engine;

    pthread_mutex_lock(&e->lock);
    add(&e->links, l);
    e->n_links++;
    pthread_mutex_unlock(&e->lock);
}

enum status engine_link_open(struct engine *e, struct loop *loop, struct engine_link **out)
{
    struct engine_link *l = calloc(1, sizeof *l);
    enum status s;

    if (l == NULL)
        return ST_NO_MEMORY;
    l->engine = e;
    l->loop = loop;
    l->message.on_message = on_message;
    l->models = calloc(e->n_models, sizeof l->models[0]);
    if (l->models == NULL) {
        free(l);
        return ST_NO_MEMORY;
    }
    enlist(l);
    s = follow(l);
    if (s != ST_OK) {
        engine_link_close(l);
        return s;
    }
    *out = l;
    return ST_OK;
}

static void close_links(struct model_links *of)
{
    while (of->first != NULL) {
        struct revision_link *rl = of->first;

        of->first = rl->next;
        close_one(rl);
    }
}

void engine_link_close(struct engine_link *l)
{
    struct engine *e;
    bool is_told;

    if (l == NULL)
        return;
    e = l->engine;
    for (size_t i = 0; i < e->n_models; i++)
        close_links(&l->models[i]);
    free(l->models);
    pthread_mutex_lock(&e->lock);
    take_out(&e->links, l);
    e->n_links--;
    l->is_closed = true;
    is_told = l->is_told;
    if (is_told)
        add(&e->unread, l);
    swap_wake(e);
    pthread_mutex_unlock(&e->lock);
    if (!is_told)
        free(l);
}

/* ---- what callers ask ---- */

bool engine_link_takes(const struct engine_link *l, const struct engine_revision *r)
{
    const struct revision_link *rl = links_find(l, r);

    return rl != NULL && link_is_ready(rl);
}

bool engine_link_serves(const struct engine_link *l, const struct engine_model *m)
{
    const struct engine_revision *r = engine_revision_get(m);
    bool serves = r != NULL && engine_link_takes(l, r);

    engine_revision_put(r);
    return serves;
}

bool engine_link_is_ready(const struct engine_link *l)
{
    bool any = false;

    for (size_t i = 0; i < l->engine->n_models; i++) {
        const struct engine_model *m = &l->engine->models[i].pub;

        if (engine_link_serves(l, m))
            any = true;
        else if (m->required)
            return false;
    }
    return any;
}

enum status engine_submit(struct engine_link *l, const struct engine_submit *s,
                          struct engine_job **out)
{
    struct revision_link *rl = links_find(l, s->revision);

    return rl != NULL ? rl->backend->ops->submit(rl->backend, s, out) : ST_UNAVAILABLE;
}

void engine_cancel(struct engine_job *j)
{
    j->ops->cancel(j);
}
