/* The inside of struct engine, shared by engine.c (open, close, names), revision.c (a model's file
 * and what is made of it), links.c and link_claims.c (connections of a loop), swap.c (the change
 * from one revision to the next), engine_stats.c and prepare.c (text work). */
#ifndef ENGINE_ENGINE_STATE_H
#define ENGINE_ENGINE_STATE_H

#include <pthread.h>

#include "base/worker.h"
#include "engine/backend/backend.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "engine/tenant_share.h"
#include "engine/text/template.h"
#include "engine/text/tokenizer.h"

enum revision_phase {
    REVISION_NEXT,    /* the loops open links of it; no request has it */
    REVISION_CURRENT, /* what requests get */
    REVISION_OLD,     /* requests still hold it; its links stay */
    REVISION_GONE     /* nobody holds it: the loops close its links, then it is freed */
};

/* `pub` is what callers see and hold. */
struct served_revision {
    struct engine_revision pub;
    struct served_model *of;
    struct model *model;
    struct tokenizer *tokenizer;
    struct template *template; /* NULL: the file has none; chat is refused */
    unsigned content_forms;    /* of template: engine/text/template_content.h */
    struct stats_cell stats;
    struct backend_target target;
    /* under engine.lock: */
    struct served_revision *next; /* of the model, the youngest first */
    enum revision_phase phase;
    size_t n_holders; /* requests, claims, and one for being NEXT or CURRENT */
    size_t n_links;   /* a loop has one */
    size_t n_greeted; /* links that an engine has greeted at least once */
};

struct served_model {
    struct engine_model pub;
    struct engine *engine;
    char *socket_path; /* of whichever revision: the supervisor's engines are at one path too */
    /* under engine.lock: */
    struct served_revision *revisions;
    struct served_revision *current; /* NULL: none could be opened yet; then never again */
    struct served_revision *next;    /* NULL: no change is going on */
    /* Of a change, see swap.c: */
    bool is_opening;               /* its thread reads the file */
    bool is_wanted;                /* one is to begin at due_ms */
    bool is_wanted_again;          /* and another one after `next` */
    bool is_healed;                /* meanwhile an engine came back with what `current` is */
    bool is_next_refused;          /* the engine has another model than `next` */
    enum backend_event wanted_for; /* with is_wanted */
    int64_t due_ms, give_up_ms;    /* monotonic; the latter of `next` */
    int64_t backoff_ms;            /* after the next failure */
    char trouble[128];             /* why the last opening or change failed; "": it didn't */
};

struct engine {
    struct served_model *models; /* in a stable order */
    size_t n_models;
    const struct backend_ops *backend;
    void *backend_arg;
    char *build;
    int64_t silence_ms, load_wait_ms;
    struct worker *text;
    struct tenant_share share; /* of the text queue */
    struct swap *swap;         /* NULL: models never change */
    /* Held for some instructions only, never while something is called that may take time or call
     * back. */
    pthread_mutex_t lock;
    struct engine_link *links; /* under lock, as the next one: those that are open */
    size_t n_links;
    struct engine_link *unread; /* under lock: closed, with a message still in their loop's inbox */
};

static inline const struct served_revision *served_revision_of(const struct engine_revision *r)
{
    return (const struct served_revision *)r; /* pub is its first member */
}

static inline const struct served_model *served_model_of(const struct engine_model *m)
{
    return (const struct served_model *)m; /* as well */
}

/* ---- engine.c ---- */

/* m's place in e->models. */
size_t engine_index_of(const struct engine *e, const struct engine_model *m);

/* ---- revision.c ---- */

/* Maps the file, builds tokenizer and template. Any thread; takes no lock. The new one is in no
 * list, and nobody holds it. */
MUST_CHECK enum status revision_open(struct served_model *of, const struct engine_model_config *cfg,
                                     struct served_revision **out, struct reason *why);
/* Without links and out of the list; takes a while. NULL is fine. */
void revision_free(struct served_revision *r);
/* Into the model's list, held once, for its phase. Under the lock. */
void revision_add(struct served_revision *r, enum revision_phase phase);
/* One holder less. True: it is gone with that, and the links are to be told. Under the lock. */
bool revision_drop(struct served_revision *r);

/* ---- links.c ---- */

/* Every loop looks at the phases of the revisions, opens and closes links. Under the lock. */
void links_tell(struct engine *e);
/* Those that nobody's message will free. After the last link was closed. */
void links_free_unread(struct engine *e);

/* ---- swap.c ---- */

/* Starts the thread that changes revisions; before any link is opened. */
MUST_CHECK enum status swap_start(struct engine *e, const struct engine_config *cfg);
/* After all links are closed. */
void swap_stop(struct engine *e);
/* Something that a change waits for has happened. Under the lock. */
void swap_wake(struct engine *e);
/* A link of r has told it. Under the lock. */
void swap_on_event(struct served_revision *r, enum backend_event what);

#endif
