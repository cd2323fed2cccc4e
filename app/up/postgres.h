/* The private PostgreSQL of a folder: its cluster is made once, reached through one Unix socket. */
#ifndef APP_UP_POSTGRES_H
#define APP_UP_POSTGRES_H

#include <stdbool.h>

#include "app/supervise/children.h"
#include "app/up/layout.h"
#include "base/status.h"

#define POSTGRES_CONNINFO_MAX 1400
#define POSTGRES_ARGS_MAX     40

struct postgres {
    const struct layout *layout;
    char bin[256]; /* folder of its programs */
    int major;
    bool made; /* this run made the cluster */
    char socket_option[LAYOUT_PATH_MAX + 32];
    const char *argv[POSTGRES_ARGS_MAX];
    char program[288];
};

/* Finds the programs: of the cluster's own major version where there is a cluster, else the newest.
 * ST_NOT_FOUND says which package is missing. */
MUST_CHECK enum status postgres_find(struct postgres *p, const struct layout *l,
                                     struct reason *why);
/* Makes the cluster where there is none (half a minute on a slow disk, then never again). No server
 * of this folder runs. */
MUST_CHECK enum status postgres_make_cluster(struct postgres *p, struct reason *why);
/* Fills everything of `c` that the launcher needs to run it. */
void postgres_child(struct postgres *p, struct child *c);
/* It accepts connections. */
bool postgres_is_ready(const struct postgres *p);
/* Makes role and database where missing; the server is ready. */
MUST_CHECK enum status postgres_make_database(const struct postgres *p, struct reason *why);
/* Of the gateway: into out[POSTGRES_CONNINFO_MAX]. */
void postgres_conninfo(const struct layout *l, char *out);

#endif
