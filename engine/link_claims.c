/* Claims of a loop: asked of the current revision's engine, and again of the next one when that
 * engine has gone before it has answered. While no revision is current a claim waits for it. */
#include <assert.h>

#include "engine/links.h"

static void on_settled(void *arg, size_t i, const struct engine_usage *usage)
{
    struct model_links *of = arg;
    struct engine_claim *c = of->claim;

    if (of->inner.n_left == 0) {
        engine_revision_put(&of->asked->revision->pub);
        of->claim = NULL;
        of->asked = NULL;
    }
    c->on_settled(c->arg, i, usage);
}

/* Of the current revision's engine; the claim holds the revision. */
static void ask(struct engine_link *l, struct model_links *of)
{
    size_t i = (size_t)(of - l->models);
    const struct engine_revision *r = engine_revision_get(&l->engine->models[i].pub);

    of->asked = r != NULL ? links_find(l, r) : NULL;
    if (of->asked != NULL)
        of->asked->backend->ops->claim(of->asked->backend, &of->inner);
    else
        engine_revision_put(r);
}

static void take_back(struct model_links *of)
{
    if (of->asked == NULL)
        return;
    of->asked->backend->ops->unclaim(of->asked->backend, &of->inner);
    engine_revision_put(&of->asked->revision->pub);
    of->asked = NULL;
}

void engine_claim(struct engine_link *l, struct engine_claim *c)
{
    struct model_links *of = links_of(l, c->model);

    assert(of->claim == NULL);
    if (c->n == 0)
        return;
    of->claim = c;
    of->inner = (struct engine_claim){
        .model = c->model, .requests = c->requests, .n = c->n, .arg = of, .on_settled = on_settled};
    ask(l, of);
}

void engine_unclaim(struct engine_link *l, struct engine_claim *c)
{
    struct model_links *of = links_of(l, c->model);

    if (of->claim != c)
        return;
    take_back(of);
    of->claim = NULL;
}

/* The request may have run on any of them; an engine forgets nothing that it doesn't know. */
void engine_release(struct engine_link *l, const struct engine_model *m, const struct id *request)
{
    for (struct revision_link *rl = links_of(l, m)->first; rl != NULL; rl = rl->next)
        rl->backend->ops->release(rl->backend, request);
}

void links_move_claim(struct engine_link *l, struct model_links *of)
{
    if (of->claim == NULL)
        return;
    if (of->asked != NULL && (link_is_ready(of->asked) || !link_is_in(of->asked, REVISION_OLD)))
        return;
    take_back(of);
    ask(l, of);
}
