#include "engine/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/size.h"
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

static enum status choose_context(const struct engine_model_config *cfg, const struct model *m,
                                  uint32_t *out, struct reason *why)
{
    if (cfg->context_tokens > m->shape.context_tokens)
        return fail_param(why, ST_INVALID, "context_tokens",
                          "a context of %u tokens: the model was made for %u", cfg->context_tokens,
                          m->shape.context_tokens);
    *out = cfg->context_tokens != 0 ? cfg->context_tokens : m->shape.context_tokens;
    return ST_OK;
}

static uint32_t choices_that_fit(const struct engine_model_config *cfg)
{
    const uint32_t bounds[] = {cfg->queue_max, cfg->tenant_queue_max};
    uint32_t most = ENGINE_CHOICES_MAX;

    for (size_t i = 0; i < COUNT_OF(bounds); i++)
        if (bounds[i] != 0 && bounds[i] < most)
            most = bounds[i];
    return most;
}

static enum status describe(struct served_model *m, const struct engine_model_config *cfg,
                            struct reason *why)
{
    struct stat st;
    enum status s = choose_context(cfg, m->model, &m->pub.context_tokens, why);

    if (s != ST_OK)
        return s;
    if (stat(cfg->path, &st) == -1)
        return fail(why, ST_NOT_FOUND, "%s has gone", cfg->path);
    m->pub.id = cfg->id;
    m->pub.aliases = cfg->aliases;
    m->pub.n_aliases = cfg->n_aliases;
    m->pub.required = cfg->required;
    m->pub.created_s = (int64_t)st.st_mtime;
    m->pub.default_max_tokens = cfg->default_max_tokens;
    m->pub.n_vocab = tokenizer_n_vocab(m->tokenizer);
    m->pub.choices_max = choices_that_fit(cfg);
    m->pub.revision = m->model->revision;
    m->pub.defaults = (struct engine_defaults){-1, -1, -1, -1, -1};
    if (cfg->file_defaults)
        generation_defaults_read(m->model->gguf, &m->pub.defaults);
    return ST_OK;
}

static enum status set_target(struct served_model *m, const struct engine_config *cfg,
                              const char *socket_path)
{
    m->backend = cfg->backend != NULL ? cfg->backend : &process_backend_ops;
    m->target = (struct backend_target){
        .socket_path = strdup(socket_path != NULL ? socket_path : ""),
        .build = strdup(cfg->build != NULL ? cfg->build : ""),
        .revision = m->pub.revision,
        .context_tokens = m->pub.context_tokens,
        .silence_ms = cfg->silence_ms,
        .load_wait_ms = cfg->load_wait_ms,
        .stats = &m->stats,
        .arg = cfg->backend_arg,
    };
    return m->target.socket_path != NULL && m->target.build != NULL ? ST_OK : ST_NO_MEMORY;
}

static enum status open_model(struct served_model *m, const struct engine_config *cfg,
                              const struct engine_model_config *model, struct reason *why)
{
    enum status s = model_open(model->path, &m->model, why);

    if (s == ST_OK)
        s = tokenizer_new(m->model->gguf, &m->tokenizer, why);
    if (s == ST_OK)
        s = open_template(m, why);
    if (s == ST_OK)
        s = describe(m, model, why);
    return s == ST_OK ? set_target(m, cfg, model->socket_path) : s;
}

/* Of several models the reason says whose it is. */
static enum status open_named(struct served_model *m, const struct engine_config *cfg,
                              const struct engine_model_config *model, struct reason *why)
{
    struct reason inner = {0};
    enum status s;

    if (cfg->n_models == 1)
        return open_model(m, cfg, model, why);
    s = open_model(m, cfg, model, &inner);
    if (s == ST_OK)
        return ST_OK;
    return fail(why, s, "model %s: %.200s", model->id,
                inner.text[0] != '\0' ? inner.text : status_text(s));
}

static enum status open_models(struct engine *e, const struct engine_config *cfg,
                               struct reason *why)
{
    assert(cfg->n_models > 0);
    e->models = calloc(cfg->n_models, sizeof e->models[0]);
    if (e->models == NULL)
        return ST_NO_MEMORY;
    while (e->n_models < cfg->n_models) {
        struct served_model *m = &e->models[e->n_models];
        enum status s;

        stats_cell_init(&m->stats);
        e->n_models++; /* from here engine_close closes it */
        s = open_named(m, cfg, &cfg->models[e->n_models - 1], why);
        if (s != ST_OK)
            return s;
    }
    return ST_OK;
}

static void close_model(struct served_model *m)
{
    stats_cell_dispose(&m->stats);
    template_free(m->template);
    tokenizer_free(m->tokenizer);
    model_close(m->model);
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
    enum status s;

    if (e == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    s = open_models(e, cfg, why);
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

static size_t index_of(const struct engine *e, const struct engine_model *m)
{
    size_t i = (size_t)(served_model_of(m) - e->models);

    assert(i < e->n_models);
    return i;
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

/* ---- state ---- */

void engine_stats_of(struct engine *e, const struct engine_model *m, struct engine_stats *out)
{
    struct served_model *served = &e->models[index_of(e, m)];
    int64_t limit_ms = served->target.silence_ms;

    stats_cell_read(&served->stats, clock_mono_ms(), out);
    out->stalled = out->connected && limit_ms != 0 && out->last_step_age_ms >= limit_ms;
}

static void add_stats(struct engine_stats *sum, const struct engine_stats *s)
{
    sum->connected &= s->connected;
    sum->stalled |= s->stalled;
    sum->running += s->running;
    sum->waiting += s->waiting;
    sum->pages_used += s->pages_used;
    sum->pages_total += s->pages_total;
    sum->steps += s->steps;
    sum->prompt_tokens += s->prompt_tokens;
    sum->output_tokens += s->output_tokens;
    sum->preemptions += s->preemptions;
    sum->prefix_query_tokens += s->prefix_query_tokens;
    sum->prefix_hit_tokens += s->prefix_hit_tokens;
    sum->not_finite += s->not_finite;
    if (s->rows_max > sum->rows_max)
        sum->rows_max = s->rows_max;
    if (s->last_step_age_ms > sum->last_step_age_ms)
        sum->last_step_age_ms = s->last_step_age_ms;
}

void engine_stats(struct engine *e, struct engine_stats *out)
{
    struct engine_stats s;

    engine_stats_of(e, &e->models[0].pub, out);
    for (size_t i = 1; i < e->n_models; i++) {
        engine_stats_of(e, &e->models[i].pub, &s);
        add_stats(out, &s);
    }
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

static bool serves(const struct engine_link *l, size_t i)
{
    return l->links[i]->ops->is_ready(l->links[i]);
}

bool engine_link_serves(const struct engine_link *l, const struct engine_model *m)
{
    return serves(l, index_of(l->engine, m));
}

bool engine_link_is_ready(const struct engine_link *l)
{
    bool any = false;

    for (size_t i = 0; i < l->engine->n_models; i++) {
        if (serves(l, i))
            any = true;
        else if (l->engine->models[i].pub.required)
            return false;
    }
    return any;
}

static struct backend_link *link_to(const struct engine_link *l, const struct engine_model *m)
{
    return l->links[index_of(l->engine, m)];
}

enum status engine_submit(struct engine_link *l, const struct engine_submit *s,
                          struct engine_job **out)
{
    struct backend_link *to = link_to(l, s->model);

    return to->ops->submit(to, s, out);
}

void engine_cancel(struct engine_job *j)
{
    j->ops->cancel(j);
}

void engine_claim(struct engine_link *l, struct engine_claim *c)
{
    struct backend_link *to = link_to(l, c->model);

    to->ops->claim(to, c);
}

void engine_unclaim(struct engine_link *l, struct engine_claim *c)
{
    struct backend_link *to = link_to(l, c->model);

    to->ops->unclaim(to, c);
}

void engine_release(struct engine_link *l, const struct engine_model *m, const struct id *request)
{
    struct backend_link *to = link_to(l, m);

    to->ops->release(to, request);
}
