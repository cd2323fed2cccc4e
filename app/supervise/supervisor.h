/* The launcher's event loop: takes signals and deaths, restarts what died, watches the engines,
 * hears `sluice model`, stops all in reverse order. Signals are blocked and come through a
 * descriptor, so there are no handlers. One thread. */
#ifndef APP_SUPERVISE_SUPERVISOR_H
#define APP_SUPERVISE_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "app/supervise/children.h"
#include "app/supervise/control.h"
#include "app/supervise/engine_guard.h"
#include "app/supervise/engine_swap.h"
#include "base/status.h"

/* As many as a configuration may have models. */
#define SUPERVISOR_ENGINES_MAX  64
#define SUPERVISOR_CHILDREN_MAX (2 * SUPERVISOR_ENGINES_MAX + 8) /* engines and successors */

struct supervisor {
    struct child
        *children[SUPERVISOR_CHILDREN_MAX]; /* stopped from the last to the first; borrowed */
    size_t n;
    struct engine_guard *guards[SUPERVISOR_ENGINES_MAX]; /* of some children; borrowed */
    size_t n_guards;
    struct engine_swap *swaps[SUPERVISOR_ENGINES_MAX]; /* borrowed */
    size_t n_swaps;
    struct control *control; /* borrowed; NULL: none */
    int signal_fd;
    bool on_terminal;
    int64_t began_ms;
    unsigned stops_asked; /* SIGINT, SIGTERM, and the terminal's end so far */
    int64_t last_stop_ms; /* when the last of them came */
};

/* Before any thread starts. ST_IO. */
MUST_CHECK enum status supervisor_init(struct supervisor *s, struct reason *why);
/* One line of progress on standard output, with the seconds since supervisor_init. */
void supervisor_say(const struct supervisor *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Puts c under its watch, to be stopped before those that were added earlier. */
void supervisor_add(struct supervisor *s, struct child *c);
/* The same, for an engine and what is done for it. */
void supervisor_add_engine(struct supervisor *s, struct engine_guard *g);
/* The same, for a successor that may come. */
void supervisor_add_swap(struct supervisor *s, struct engine_swap *sw);
/* Starts a child that was added, and from now on whenever it died. */
MUST_CHECK enum status supervisor_start(struct supervisor *s, struct child *c, struct reason *why);
/* Until is_ready(arg). ST_CANCELLED: a stop was asked for; ST_UNAVAILABLE: a child keeps dying that
 * isn't optional, or all that are; ST_TIMEOUT. */
MUST_CHECK enum status supervisor_wait(struct supervisor *s, bool (*is_ready)(void *arg), void *arg,
                                       int64_t timeout_ms, struct reason *why);
/* Until a stop is asked for. A SIGHUP that some process sent starts at once what was given up or
 * waits; one that comes because the terminal has gone is a stop. */
void supervisor_run(struct supervisor *s);
/* Each child in turn, the last added first; a second signal cuts the waiting short. Afterwards no
 * descendant is left. */
void supervisor_stop(struct supervisor *s);

#endif
