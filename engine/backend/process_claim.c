/* What became of requests of an earlier gateway: asked of whatever engine process is there, once it
 * has greeted, and again of its successor when it goes before it has answered. */
#include <assert.h>

#include "base/size.h"
#include "engine/backend/process_state.h"
#include "engine/wire/wire.h"

/* The claim is no longer the link's when the last callback comes. */
static void settle(struct process_link *l, size_t i, const struct engine_usage *usage)
{
    struct engine_claim *c = l->claim;

    c->requests[i].is_settled = true;
    if (--c->n_left == 0)
        l->claim = NULL;
    c->on_settled(c->arg, i, usage);
}

static void settle_all_unknown(struct process_link *l)
{
    const struct engine_claim *c = l->claim;

    for (size_t i = 0; l->claim == c && i < c->n; i++)
        if (!c->requests[i].is_settled)
            settle(l, i, NULL);
}

static void put_claims(struct process_link *l, const struct engine_claim *c)
{
    struct wire_requests v = {.n = 0};

    for (size_t i = 0; i < c->n; i++) {
        if (c->requests[i].is_settled)
            continue;
        v.ids[v.n++] = c->requests[i].id;
        if (v.n < WIRE_CLAIM_MAX)
            continue;
        wire_put_claim(&l->out, &v);
        v.n = 0;
    }
    if (v.n > 0)
        wire_put_claim(&l->out, &v);
}

void process_claim_send(struct process_link *l)
{
    if (l->claim == NULL || l->state != LINK_READY || l->is_broken)
        return;
    if (l->version < WIRE_VERSION_ADOPT) {
        settle_all_unknown(l);
        return;
    }
    put_claims(l, l->claim);
    process_link_flush(l);
}

/* A claim may have been another link's before, and have some answers. */
static size_t count_open(const struct engine_claim *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++)
        n += !c->requests[i].is_settled;
    return n;
}

void process_claim(struct backend_link *super, struct engine_claim *c)
{
    struct process_link *l = CONTAINER_OF(super, struct process_link, super);

    assert(l->claim == NULL);
    c->n_left = count_open(c);
    c->next = 0;
    if (c->n_left == 0)
        return;
    l->claim = c;
    process_claim_send(l);
}

void process_unclaim(struct backend_link *super, struct engine_claim *c)
{
    struct process_link *l = CONTAINER_OF(super, struct process_link, super);

    if (l->claim == c)
        l->claim = NULL;
}

void process_release(struct backend_link *super, const struct id *request)
{
    struct process_link *l = CONTAINER_OF(super, struct process_link, super);
    struct wire_requests v = {.n = 1};

    if (l->state != LINK_READY || l->is_broken || l->version < WIRE_VERSION_ADOPT)
        return;
    v.ids[0] = *request;
    wire_put_release(&l->out, &v);
    process_link_flush(l);
}

/* Answers come mostly in the order of the question: the search begins behind the last one. */
static bool find(struct engine_claim *c, const struct id *request, size_t *out)
{
    for (size_t k = 0; k < c->n; k++) {
        size_t i = (c->next + k) % c->n;

        if (!id_equal(&c->requests[i].id, request))
            continue;
        c->next = i + 1;
        *out = i;
        return true;
    }
    return false;
}

enum status process_claim_settled(struct process_link *l, const struct wire_frame *f)
{
    struct wire_settled v;
    struct engine_usage usage;
    size_t i;

    if (l->version < WIRE_VERSION_ADOPT || wire_get_settled(f, &v) != ST_OK)
        return ST_CORRUPT;
    /* Nobody waits for it any more: it came too late. */
    if (l->claim == NULL || !find(l->claim, &v.request, &i) || l->claim->requests[i].is_settled)
        return ST_OK;
    usage = (struct engine_usage){.prompt_tokens = v.prompt_tokens,
                                  .cached_tokens = v.cached_tokens,
                                  .output_tokens = v.output_tokens};
    settle(l, i, v.is_known ? &usage : NULL);
    return ST_OK;
}
