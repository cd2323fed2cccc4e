/* What `sluice status` found out: from each engine's socket, as a monitor; from what a supervisor
 * wrote beside them; and from the gateway's /readyz. Blocks for a few seconds at most; one thread.
 */
#ifndef APP_STATUS_REPORT_H
#define APP_STATUS_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "app/config.h"
#include "app/supervise/last_lines.h"
#include "base/status.h"
#include "engine/wire/wire.h"

enum engine_presence {
    ENGINE_ABSENT, /* nothing listens at its socket */
    ENGINE_DOWN,   /* its supervisor answers there, with a reason */
    ENGINE_MUTE,   /* something listens, and says nothing */
    ENGINE_READY,
};

struct engine_report {
    const struct config_model *model; /* borrowed */
    enum engine_presence presence;
    bool is_asleep;              /* down, because it was idle: the next request loads it */
    struct wire_welcome welcome; /* with ENGINE_READY, as the next one */
    struct wire_stats stats;
    bool is_supervised; /* then: */
    unsigned deaths;
    /* The supervisor's view: "running", "waiting", "stopped", "unloading", "unloaded". */
    char state[16];
    char reason[512];      /* why it is away, or how it ended last; "" nothing to say */
    struct last_lines log; /* what it said before it ended last */
};

struct status_report {
    struct engine_report *engines; /* (n), in the file's order */
    size_t n;
    int http;       /* /readyz's status code; -1: no answer */
    json_t *readyz; /* its body; NULL: none */
};

/* c must stay until the report is disposed of. ST_NO_MEMORY. */
MUST_CHECK enum status status_report_ask(struct status_report *r, const struct config *c);
void status_report_dispose(struct status_report *r);
/* By the rule of /readyz: at least one model's engine works or sleeps, all required ones do, and
 * the gateway says so itself. */
bool status_report_is_ready(const struct status_report *r);
/* "ready", "absent", "down", "mute". */
const char *engine_presence_name(enum engine_presence p);

#endif
