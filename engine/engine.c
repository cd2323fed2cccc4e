#include "engine/engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_state.h"

/* ---- open, close ---- */

/* Of several models the reason says whose it is. `why` is zeroed, not NULL. */
static enum status open_revision(struct served_model *m, const struct engine_model_config *cfg,
                                 struct reason *why)
{
    struct served_revision *r;
    struct reason inner = {0};
    enum status s = revision_open(m, cfg, &r, &inner);

    if (s == ST_OK) {
        revision_add(r, REVISION_CURRENT);
        m->current = r;
        return ST_OK;
    }
    if (inner.text[0] == '\0')
        snprintf(inner.text, sizeof inner.text, "%s", status_text(s));
    snprintf(m->trouble, sizeof m->trouble, "%.*s", (int)sizeof m->trouble - 1, inner.text);
    if (m->engine->n_models > 1)
        return fail(why, s, "model %s: %.200s", cfg->id, inner.text);
    *why = inner;
    return s;
}

/* swap.c opens it. Not one that is required: who marked it wants to know now. */
static bool may_come_later(const struct engine_config *cfg, const struct engine_model_config *m)
{
    return cfg->reload != NULL && !m->required;
}

/* One that can't be opened keeps none of the others from being served; without any there is nothing
 * to serve, and the reason is the first one's. */
static enum status open_revisions(struct engine *e, const struct engine_config *cfg,
                                  struct reason *why)
{
    enum status failure = ST_OK;
    struct reason of_failure = {0};
    bool refuses = false;
    size_t n_open = 0;

    for (size_t i = 0; i < e->n_models && !refuses; i++) {
        struct reason inner = {0};
        enum status s = open_revision(&e->models[i], &cfg->models[i], &inner);

        if (s == ST_OK) {
            n_open++;
            continue;
        }
        refuses = !may_come_later(cfg, &cfg->models[i]);
        if (failure == ST_OK || refuses) {
            failure = s;
            of_failure = inner;
        }
    }
    if (n_open > 0 && !refuses)
        return ST_OK;
    if (why != NULL)
        *why = of_failure;
    return failure;
}

static enum status open_models(struct engine *e, const struct engine_config *cfg,
                               struct reason *why)
{
    assert(cfg->n_models > 0);
    e->models = calloc(cfg->n_models, sizeof e->models[0]);
    if (e->models == NULL)
        return ST_NO_MEMORY;
    e->n_models = cfg->n_models;
    for (size_t i = 0; i < cfg->n_models; i++) {
        const struct engine_model_config *from = &cfg->models[i];

        e->models[i] = (struct served_model){
            .pub = {.id = from->id,
                    .aliases = from->aliases,
                    .n_aliases = from->n_aliases,
                    .required = from->required},
            .engine = e,
            .socket_path = strdup(from->socket_path != NULL ? from->socket_path : "")};
        if (e->models[i].socket_path == NULL)
            return ST_NO_MEMORY;
    }
    return open_revisions(e, cfg, why);
}

static void close_model(struct served_model *m)
{
    while (m->revisions != NULL) {
        struct served_revision *r = m->revisions;

        m->revisions = r->next;
        revision_free(r);
    }
    free(m->socket_path);
}

static enum status start_text(struct engine *e, const struct engine_config *cfg)
{
    struct worker_config w = {.name = "text",
                              .n_threads = cfg->text_threads != 0 ? cfg->text_threads : 1,
                              .capacity = cfg->text_queue};
    enum status s;

    /* Half for one tenant: the others find room however many works it sends. */
    s = tenant_share_init(&e->share, cfg->text_queue + w.n_threads, (cfg->text_queue + 1) / 2);
    return s == ST_OK ? worker_start(&w, &e->text) : s;
}

static struct engine *new_engine(const struct engine_config *cfg)
{
    struct engine *e = calloc(1, sizeof *e);

    if (e == NULL)
        return NULL;
    pthread_mutex_init(&e->lock, NULL);
    e->backend = cfg->backend != NULL ? cfg->backend : &process_backend_ops;
    e->backend_arg = cfg->backend_arg;
    e->silence_ms = cfg->silence_ms;
    e->load_wait_ms = cfg->load_wait_ms;
    e->build = strdup(cfg->build != NULL ? cfg->build : "");
    if (e->build != NULL)
        return e;
    engine_close(e);
    return NULL;
}

enum status engine_open(const struct engine_config *cfg, struct engine **out, struct reason *why)
{
    struct engine *e = new_engine(cfg);
    enum status s;

    if (e == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    s = open_models(e, cfg, why);
    if (s == ST_OK)
        s = start_text(e, cfg);
    if (s == ST_OK && cfg->reload != NULL)
        s = swap_start(e, cfg);
    if (s != ST_OK) {
        engine_close(e);
        return s;
    }
    *out = e;
    return ST_OK;
}

void engine_close(struct engine *e)
{
    if (e == NULL)
        return;
    worker_stop(e->text);
    swap_stop(e);
    tenant_share_dispose(&e->share);
    links_free_unread(e);
    for (size_t i = 0; i < e->n_models; i++)
        close_model(&e->models[i]);
    free(e->models);
    free(e->build);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- names ---- */

const struct engine_model *engine_model_at(const struct engine *e, size_t i)
{
    return i < e->n_models ? &e->models[i].pub : NULL;
}

static bool is_called(const struct engine_model *m, const char *name)
{
    if (strcmp(m->id, name) == 0)
        return true;
    for (size_t i = 0; i < m->n_aliases; i++)
        if (strcmp(m->aliases[i], name) == 0)
            return true;
    return false;
}

const struct engine_model *engine_model_find(const struct engine *e, const char *name)
{
    for (size_t i = 0; i < e->n_models; i++)
        if (is_called(&e->models[i].pub, name))
            return &e->models[i].pub;
    return NULL;
}

size_t engine_index_of(const struct engine *e, const struct engine_model *m)
{
    size_t i = (size_t)(served_model_of(m) - e->models);

    assert(i < e->n_models);
    return i;
}
