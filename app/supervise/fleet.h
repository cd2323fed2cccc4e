/* The engines of a configuration, one per model: each a child and its guard under one supervisor,
 * with socket, pid file and state file of its own, so that what one does is nobody else's matter;
 * and what `sluice model` asks of them. One thread. */
#ifndef APP_SUPERVISE_FLEET_H
#define APP_SUPERVISE_FLEET_H

#include <limits.h>
#include <stddef.h>

#include "app/config.h"
#include "app/supervise/control.h"
#include "app/supervise/supervisor.h"
#include "base/status.h"

struct fleet_engine {
    struct child child;
    struct engine_guard guard;
    struct engine_swap swap;
    char *id, *socket;
    int64_t idle_ms; /* until it is unloaded; 0: never */
    char name[128];  /* "engine"; of several "engine ID" */
    const char *argv[8];
};

struct fleet {
    struct fleet_engine *engines; /* (n), in the file's order */
    size_t n;
    char self[PATH_MAX], config[PATH_MAX];
    int64_t stall_ms;
    struct supervisor *supervisor; /* borrowed */
    struct control control;
};

/* Describes them; starts nothing. `self` is the program, `config` the file that c was read from,
 * both absolute; c may go afterwards. `gateway` and the supervisor are borrowed; the fleet must not
 * move from now on. ST_NO_MEMORY. */
MUST_CHECK enum status fleet_init(struct fleet *f, const struct config *c, const char *self,
                                  const char *config, struct supervisor *s,
                                  const struct child *gateway, struct reason *why);
/* "FOLDER/engine.log"; of several "FOLDER/engine.2.ID.log", what a path can't have replaced by '-'.
 * Without it their output goes to standard error. Before fleet_start. */
void fleet_set_logs(struct fleet *f, const char *folder);
/* Whatever an earlier supervisor left is ended: as child_end_orphan. */
MUST_CHECK enum status fleet_end_orphans(const struct fleet *f, struct reason *why);
/* Adds all to the supervisor, once no other one can be at work here. Whoever is added later is
 * stopped before them. */
void fleet_add(struct fleet *f);
/* Starts all, and opens the control socket at the configuration's engine socket. Without one (its
 * path is too long) everything but `sluice model` works, and the supervisor says so. */
MUST_CHECK enum status fleet_start(struct fleet *f, const char *engine_socket, struct reason *why);
/* After supervisor_stop. A zeroed struct is fine. */
void fleet_dispose(struct fleet *f);

/* A control_answer; `fleet` is a struct fleet. */
void fleet_answer(void *fleet, const struct control_request *r, int64_t now_ms, struct buf *out);

#endif
