/* State of a loop's links, shared by links.c and link_claims.c. Nobody else includes this. All of
 * it belongs to the loop's thread, but for what is under engine.lock. */
#ifndef ENGINE_LINKS_H
#define ENGINE_LINKS_H

#include "engine/engine_state.h"

struct revision_link {
    struct revision_link *next; /* of the loop and model, the youngest first */
    struct engine_link *loop;
    struct served_revision *revision;
    struct backend_link *backend;
    bool is_greeted; /* once; under engine.lock */
};

/* What a loop has of a model. */
struct model_links {
    struct revision_link *first;
    /* A claim is asked through one of its own, which notices the last answer and moves from link to
     * link. NULL: there is none. `asked` and its revision stay until it is over; NULL: none is
     * current yet. */
    struct engine_claim *claim;
    struct engine_claim inner;
    struct revision_link *asked;
};

struct engine_link {
    struct engine *engine;
    struct loop *loop;
    struct model_links *models; /* as engine.models */
    struct loop_message message;
    /* under engine.lock: */
    struct engine_link *prev, *next; /* of engine.links or engine.unread */
    bool is_told;                    /* message is in the loop's inbox */
    bool is_closed;
};

static inline struct model_links *links_of(const struct engine_link *l,
                                           const struct engine_model *m)
{
    return &l->models[engine_index_of(l->engine, m)];
}

/* NULL: there is none of that revision. */
static inline struct revision_link *links_find(const struct engine_link *l,
                                               const struct engine_revision *r)
{
    struct revision_link *rl = links_of(l, r->model)->first;

    while (rl != NULL && &rl->revision->pub != r)
        rl = rl->next;
    return rl;
}

static inline bool link_is_ready(const struct revision_link *rl)
{
    return rl->backend->ops->is_ready(rl->backend);
}

/* ---- links.c ---- */

bool link_is_in(const struct revision_link *rl, enum revision_phase phase);

/* ---- link_claims.c ---- */

/* An old engine that is gone answers no more, and the one in its place has another model: the claim
 * goes there, where what isn't known is said to be so. One that waits for the first revision goes
 * to that when it is current. */
void links_move_claim(struct engine_link *l, struct model_links *of);

#endif
