/* Where a job runs, seen from a loop of the gateway: an engine process (process.c) or a script for
 * tests (fake.c). engine/revision.c owns the targets; a link and its jobs belong to their loop's
 * thread. */
#ifndef ENGINE_BACKEND_BACKEND_H
#define ENGINE_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/status.h"
#include "engine/backend/stats_cell.h"
#include "engine/engine.h"

struct backend_ops;

enum backend_event {
    BACKEND_GREETED,  /* the link is ready */
    BACKEND_HANDOVER, /* another engine serves the socket's path now; this one goes on until the
                         link closes */
    BACKEND_MISMATCH  /* the engine at the path has another model, or less context */
};

struct backend_link {
    const struct backend_ops *ops;
    /* NULL, or called on the loop, from inside the link: nothing is closed there. Set by the owner
     * after link_open, which calls nothing. */
    void (*on_event)(void *arg, enum backend_event what);
    void *arg;
};

static inline void backend_tell(const struct backend_link *l, enum backend_event what)
{
    if (l->on_event != NULL)
        l->on_event(l->arg, what);
}

/* The public job: what engine.h hands out. */
struct engine_job {
    const struct backend_ops *ops;
};

/* Outlives its links; shared by all loops and immutable, but for the cell. */
struct backend_target {
    const char *socket_path;
    const char *revision;    /* of the model that this side tokenizes for */
    const char *build;       /* told to the engine */
    uint32_t context_tokens; /* the engine must allow as many */
    int64_t silence_ms;      /* 0: it may be silent for ever */
    int64_t load_wait_ms;    /* of a job, for an engine that was unloaded while idle; 0: none */
    struct stats_cell *stats;
    void *arg; /* the backend's own: a script */
};

struct backend_ops {
    const char *name;
    enum status (*link_open)(const struct backend_target *t, struct loop *loop,
                             struct backend_link **out);
    void (*link_close)(struct backend_link *l);     /* ends its jobs: ST_UNAVAILABLE */
    bool (*is_ready)(const struct backend_link *l); /* or is loaded for the first job */
    /* As engine_submit and engine_cancel. */
    enum status (*submit)(struct backend_link *l, const struct engine_submit *s,
                          struct engine_job **out);
    void (*cancel)(struct engine_job *j);
    /* As engine_claim, engine_unclaim and engine_release. */
    void (*claim)(struct backend_link *l, struct engine_claim *c);
    void (*unclaim)(struct backend_link *l, struct engine_claim *c);
    void (*release)(struct backend_link *l, const struct id *request);
};

extern const struct backend_ops process_backend_ops;

#endif
