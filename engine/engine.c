#include "engine/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "engine/engine_state.h"
#include "engine/text/template_content.h"

/* ---- models ---- */

static enum status open_template(struct served_model *m, struct reason *why)
{
    struct gguf_string source;

    enum status s;

    if (!gguf_get_string(m->model->gguf, "tokenizer.chat_template", &source))
        return ST_OK;
    s = template_new(source.data, source.len, &m->template, why);
    if (s == ST_OK)
        m->content_forms = template_content_forms(m->template);
    return s;
}

static enum status choose_context(const struct engine_config *cfg, const struct model *m,
                                  uint32_t *out, struct reason *why)
{
    if (cfg->context_tokens > m->shape.context_tokens)
        return fail_param(why, ST_INVALID, "context_tokens",
                          "a context of %u tokens: the model was made for %u", cfg->context_tokens,
                          m->shape.context_tokens);
    *out = cfg->context_tokens != 0 ? cfg->context_tokens : m->shape.context_tokens;
    return ST_OK;
}

static enum status describe(struct served_model *m, const struct engine_config *cfg,
                            struct reason *why)
{
    struct stat st;
    enum status s = choose_context(cfg, m->model, &m->pub.context_tokens, why);

    if (s != ST_OK)
        return s;
    if (stat(cfg->model_path, &st) == -1)
        return fail(why, ST_NOT_FOUND, "%s has gone", cfg->model_path);
    m->pub.id = strdup(cfg->model_id);
    if (m->pub.id == NULL)
        return ST_NO_MEMORY;
    m->pub.created_s = (int64_t)st.st_mtime;
    m->pub.default_max_tokens = cfg->default_max_tokens;
    m->pub.n_vocab = tokenizer_n_vocab(m->tokenizer);
    m->pub.revision = m->model->revision;
    generation_defaults_read(m->model->gguf, &m->pub.defaults);
    return ST_OK;
}

static enum status set_target(struct served_model *m, const struct engine_config *cfg)
{
    m->backend = cfg->backend != NULL ? cfg->backend : &process_backend_ops;
    m->target = (struct backend_target){
        .socket_path = strdup(cfg->socket_path != NULL ? cfg->socket_path : ""),
        .build = strdup(cfg->build != NULL ? cfg->build : ""),
        .revision = m->pub.revision,
        .context_tokens = m->pub.context_tokens,
        .silence_ms = cfg->silence_ms,
        .stats = &m->stats,
        .arg = cfg->backend_arg,
    };
    return m->target.socket_path != NULL && m->target.build != NULL ? ST_OK : ST_NO_MEMORY;
}

static enum status open_model(struct served_model *m, const struct engine_config *cfg,
                              struct reason *why)
{
    enum status s;

    stats_cell_init(&m->stats);
    s = model_open(cfg->model_path, &m->model, why);
    if (s == ST_OK)
        s = tokenizer_new(m->model->gguf, &m->tokenizer, why);
    if (s == ST_OK)
        s = open_template(m, why);
    if (s == ST_OK)
        s = describe(m, cfg, why);
    return s == ST_OK ? set_target(m, cfg) : s;
}

static void close_model(struct served_model *m)
{
    stats_cell_dispose(&m->stats);
    template_free(m->template);
    tokenizer_free(m->tokenizer);
    model_close(m->model);
    free((char *)m->pub.id);
    free((char *)m->target.socket_path);
    free((char *)m->target.build);
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

enum status engine_open(const struct engine_config *cfg, struct engine **out, struct reason *why)
{
    struct engine *e = calloc(1, sizeof *e);
    enum status s = ST_NO_MEMORY;

    if (e == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    e->models = calloc(1, sizeof e->models[0]);
    if (e->models != NULL) {
        e->n_models = 1;
        s = open_model(&e->models[0], cfg, why);
    }
    if (s == ST_OK)
        s = start_text(e, cfg);
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
    tenant_share_dispose(&e->share);
    for (size_t i = 0; i < e->n_models; i++)
        close_model(&e->models[i]);
    free(e->models);
    free(e);
}

const struct engine_model *engine_model_at(const struct engine *e, size_t i)
{
    return i < e->n_models ? &e->models[i].pub : NULL;
}

const struct engine_model *engine_model_find(const struct engine *e, const char *id)
{
    for (size_t i = 0; i < e->n_models; i++)
        if (strcmp(e->models[i].pub.id, id) == 0)
            return &e->models[i].pub;
    return NULL;
}

void engine_stats(struct engine *e, struct engine_stats *out)
{
    int64_t limit_ms = e->models[0].target.silence_ms;

    stats_cell_read(&e->models[0].stats, clock_mono_ms(), out);
    out->stalled = out->connected && limit_ms != 0 && out->last_step_age_ms >= limit_ms;
}

size_t engine_token_bytes(const struct engine_model *m, int32_t id, char *out, size_t cap)
{
    size_t len;
    const char *piece = tokenizer_piece(served_model_of(m)->tokenizer, id, &len);

    if (piece == NULL)
        return 0;
    memcpy(out, piece, len < cap ? len : cap);
    return len;
}

/* ---- links: one per loop, to every model ---- */

struct engine_link {
    const struct engine *engine;
    struct backend_link **links; /* as engine.models; NULL: not opened */
};

enum status engine_link_open(struct engine *e, struct loop *loop, struct engine_link **out)
{
    struct engine_link *l = calloc(1, sizeof *l);
    enum status s = ST_OK;

    if (l == NULL)
        return ST_NO_MEMORY;
    l->engine = e;
    l->links = calloc(e->n_models, sizeof l->links[0]);
    if (l->links == NULL)
        s = ST_NO_MEMORY;
    for (size_t i = 0; s == ST_OK && i < e->n_models; i++)
        s = e->models[i].backend->link_open(&e->models[i].target, loop, &l->links[i]);
    if (s != ST_OK) {
        engine_link_close(l);
        return s;
    }
    *out = l;
    return ST_OK;
}

void engine_link_close(struct engine_link *l)
{
    if (l == NULL)
        return;
    for (size_t i = 0; l->links != NULL && i < l->engine->n_models; i++)
        if (l->links[i] != NULL)
            l->links[i]->ops->link_close(l->links[i]);
    free(l->links);
    free(l);
}

bool engine_link_is_ready(const struct engine_link *l)
{
    for (size_t i = 0; i < l->engine->n_models; i++)
        if (!l->links[i]->ops->is_ready(l->links[i]))
            return false;
    return true;
}

enum status engine_submit(struct engine_link *l, const struct engine_submit *s,
                          struct engine_job **out)
{
    size_t i = (size_t)(served_model_of(s->model) - l->engine->models);

    assert(i < l->engine->n_models);
    return l->links[i]->ops->submit(l->links[i], s, out);
}

void engine_cancel(struct engine_job *j)
{
    j->ops->cancel(j);
}
