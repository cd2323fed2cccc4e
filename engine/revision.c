/* A model's file and what this side makes of it: its tokenizer, its template, what requests may
 * ask for. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/size.h"
#include "engine/engine_state.h"
#include "engine/text/template_content.h"

static enum status open_template(struct served_revision *r, struct reason *why)
{
    struct gguf_string source;

    enum status s;

    if (!gguf_get_string(r->model->gguf, "tokenizer.chat_template", &source))
        return ST_OK;
    s = template_new(source.data, source.len, &r->template, why);
    if (s == ST_OK)
        r->content_forms = template_content_forms(r->template);
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

static enum status describe(struct served_revision *r, const struct engine_model_config *cfg,
                            struct reason *why)
{
    struct engine_revision *pub = &r->pub;
    struct stat st;
    enum status s = choose_context(cfg, r->model, &pub->context_tokens, why);

    if (s != ST_OK)
        return s;
    if (stat(cfg->path, &st) == -1)
        return fail(why, ST_NOT_FOUND, "%s has gone", cfg->path);
    pub->created_s = (int64_t)st.st_mtime;
    pub->default_max_tokens = cfg->default_max_tokens;
    pub->n_vocab = tokenizer_n_vocab(r->tokenizer);
    pub->choices_max = choices_that_fit(cfg);
    pub->hex = r->model->revision;
    pub->defaults = (struct engine_defaults){-1, -1, -1, -1, -1};
    if (cfg->file_defaults)
        generation_defaults_read(r->model->gguf, &pub->defaults);
    return ST_OK;
}

static void set_target(struct served_revision *r)
{
    const struct engine *e = r->of->engine;

    r->target = (struct backend_target){
        .socket_path = r->of->socket_path,
        .build = e->build,
        .revision = r->pub.hex,
        .context_tokens = r->pub.context_tokens,
        .silence_ms = e->silence_ms,
        .load_wait_ms = e->load_wait_ms,
        .stats = &r->stats,
        .arg = e->backend_arg,
    };
}

static enum status open_parts(struct served_revision *r, const struct engine_model_config *cfg,
                              struct reason *why)
{
    enum status s = model_open(cfg->path, &r->model, why);

    if (s == ST_OK)
        s = tokenizer_new(r->model->gguf, &r->tokenizer, why);
    if (s == ST_OK)
        s = open_template(r, why);
    if (s == ST_OK)
        s = describe(r, cfg, why);
    if (s == ST_OK)
        set_target(r);
    return s;
}

enum status revision_open(struct served_model *of, const struct engine_model_config *cfg,
                          struct served_revision **out, struct reason *why)
{
    struct served_revision *r = calloc(1, sizeof *r);
    enum status s;

    if (r == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    r->of = of;
    r->pub.model = &of->pub;
    stats_cell_init(&r->stats);
    s = open_parts(r, cfg, why);
    if (s != ST_OK) {
        revision_free(r);
        return s;
    }
    *out = r;
    return ST_OK;
}

void revision_free(struct served_revision *r)
{
    if (r == NULL)
        return;
    stats_cell_dispose(&r->stats);
    template_free(r->template);
    tokenizer_free(r->tokenizer);
    model_close(r->model);
    free(r);
}

/* ---- holders ---- */

void revision_add(struct served_revision *r, enum revision_phase phase)
{
    r->phase = phase;
    r->n_holders = 1;
    r->next = r->of->revisions;
    r->of->revisions = r;
}

bool revision_drop(struct served_revision *r)
{
    assert(r->n_holders > 0);
    if (--r->n_holders > 0)
        return false;
    r->phase = REVISION_GONE;
    return true;
}

const struct engine_revision *engine_revision_get(const struct engine_model *m)
{
    const struct served_model *served = served_model_of(m);
    struct served_revision *r;

    pthread_mutex_lock(&served->engine->lock);
    r = served->current;
    if (r != NULL)
        r->n_holders++;
    pthread_mutex_unlock(&served->engine->lock);
    return r != NULL ? &r->pub : NULL;
}

void engine_revision_put(const struct engine_revision *pub)
{
    struct served_revision *r = (struct served_revision *)served_revision_of(pub);
    struct engine *e;

    if (r == NULL)
        return;
    e = r->of->engine;
    pthread_mutex_lock(&e->lock);
    if (revision_drop(r)) {
        links_tell(e);
        swap_wake(e);
    }
    pthread_mutex_unlock(&e->lock);
}

size_t engine_token_bytes(const struct engine_revision *r, int32_t id, char *out, size_t cap)
{
    size_t len;
    const char *piece = tokenizer_piece(served_revision_of(r)->tokenizer, id, &len);

    if (piece == NULL)
        return 0;
    memcpy(out, piece, len < cap ? len : cap);
    return len;
}
