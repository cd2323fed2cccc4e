#include "api/adoption.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"

struct adopted {
    struct adoption *adoption;
    const struct engine_model *model; /* whose engine says that it knows it; NULL: none yet */
    struct billing_final final;
    struct billing_write write;
};

/* The requests of one model: a part of the arrays. */
struct adopted_model {
    struct adoption *adoption;
    size_t first;
    struct engine_claim claim;
};

struct adoption {
    struct adoption_config cfg;
    struct loop_timer deadline;
    struct adopted_model *models; /* (n_models) */
    size_t n_models;
    struct adopted *requests;       /* (n), those of a model together */
    struct engine_claimed *claimed; /* (n), as requests */
    size_t n, n_left, n_exact;
};

/* ---- final records ---- */

/* The record is durable, or will be: it is kept and written when the disk takes it again. Only what
 * is durable is released. */
static void on_final(struct billing_write *w)
{
    struct adopted *r = CONTAINER_OF(w, struct adopted, write);
    struct adoption *a = r->adoption;
    char request[ID_HEX_BYTES];

    if (w->status == ST_OK && r->model != NULL)
        engine_release(a->cfg.link, r->model, &r->final.id);
    if (w->status != ST_OK) {
        id_to_hex(&r->final.id, request);
        log_error(request, "journal.final", "status=%s", status_name(w->status));
    }
    if (--a->n_left == 0)
        log_info(NULL, "adoption.done", "requests=%zu exact=%zu", a->n, a->n_exact);
}

static void finish(struct adopted *r)
{
    struct adoption *a = r->adoption;

    r->write = (struct billing_write){.loop = a->cfg.loop, .on_done = on_final};
    billing_finish(a->cfg.billing, &r->write, &r->final);
}

static void on_settled(void *arg, size_t i, const struct engine_usage *usage)
{
    struct adopted_model *m = arg;
    struct adopted *r = &m->adoption->requests[m->first + i];

    if (usage != NULL) {
        r->model = m->claim.model;
        r->final.prompt_tokens = usage->prompt_tokens;
        r->final.cached_tokens = usage->cached_tokens;
        r->final.output_tokens = usage->output_tokens;
        r->adoption->n_exact++;
    }
    finish(r);
}

void adoption_settle(struct adoption *a)
{
    loop_timer_stop(a->cfg.loop, &a->deadline);
    for (size_t k = 0; k < a->n_models; k++)
        engine_unclaim(a->cfg.link, &a->models[k].claim);
    for (size_t i = 0; i < a->n; i++) {
        if (a->claimed[i].is_settled)
            continue;
        a->claimed[i].is_settled = true;
        finish(&a->requests[i]);
    }
}

static void on_deadline(void *arg)
{
    adoption_settle(arg);
}

/* ---- the beginning ---- */

static void add(struct adoption *a, const struct api_interrupted *from)
{
    a->requests[a->n] = (struct adopted){.adoption = a, .final = from->final};
    a->claimed[a->n].id = from->final.id;
    a->n++;
    a->n_left++;
}

/* The held requests of a model; NULL: those of models that are not served any more. */
static void add_all_of(struct adoption *a, const struct engine_model *model)
{
    const struct adoption_config *c = &a->cfg;

    for (size_t i = 0; i < c->n; i++)
        if (c->requests[i].is_held && engine_model_find(c->engine, c->requests[i].model) == model)
            add(a, &c->requests[i]);
}

static void add_model(struct adoption *a, size_t k)
{
    struct adopted_model *m = &a->models[k];

    m->adoption = a;
    m->first = a->n;
    m->claim = (struct engine_claim){
        .model = engine_model_at(a->cfg.engine, k), .arg = m, .on_settled = on_settled};
    add_all_of(a, m->claim.model);
    m->claim.requests = a->claimed + m->first;
    m->claim.n = a->n - m->first;
}

static enum status allocate(struct adoption *a)
{
    while (engine_model_at(a->cfg.engine, a->n_models) != NULL)
        a->n_models++;
    /* One more each: an empty list is no failure. */
    a->models = calloc(a->n_models + 1, sizeof a->models[0]);
    a->requests = calloc(a->cfg.n + 1, sizeof a->requests[0]);
    a->claimed = calloc(a->cfg.n + 1, sizeof a->claimed[0]);
    return a->models != NULL && a->requests != NULL && a->claimed != NULL ? ST_OK : ST_NO_MEMORY;
}

static void ask(struct adoption *a)
{
    size_t n_known;

    for (size_t k = 0; k < a->n_models; k++)
        add_model(a, k);
    n_known = a->n;
    add_all_of(a, NULL);
    a->deadline = (struct loop_timer){.on_timer = on_deadline, .arg = a};
    if (a->n == 0)
        return;
    loop_timer_start(a->cfg.loop, &a->deadline, a->cfg.wait_ms);
    for (size_t i = n_known; i < a->n; i++) {
        a->claimed[i].is_settled = true;
        finish(&a->requests[i]);
    }
    for (size_t k = 0; k < a->n_models; k++)
        engine_claim(a->cfg.link, &a->models[k].claim);
}

enum status adoption_start(const struct adoption_config *cfg, struct adoption **out)
{
    struct adoption *a = calloc(1, sizeof *a);
    enum status s;

    if (a == NULL)
        return ST_NO_MEMORY;
    a->cfg = *cfg;
    s = allocate(a);
    if (s != ST_OK) {
        adoption_free(a);
        return s;
    }
    ask(a);
    a->cfg.requests = NULL; /* the caller's, and only now */
    *out = a;
    return ST_OK;
}

size_t adoption_left(const struct adoption *a)
{
    return a->n_left;
}

void adoption_free(struct adoption *a)
{
    if (a == NULL)
        return;
    assert(a->n_left == 0);
    loop_timer_stop(a->cfg.loop, &a->deadline);
    free(a->models);
    free(a->requests);
    free(a->claimed);
    free(a);
}
