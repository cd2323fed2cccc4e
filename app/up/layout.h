/* Where everything of one `sluice up` folder lies, and which account runs what.
 *
 * DIR holds keys, certificate, configuration, journal and logs. The databases run under an account
 * of their own when we are root (PostgreSQL refuses root, and neither needs it), so their folders
 * lie in DIR only where that account can reach it, else under /var/lib/sluice-HASH, with links in
 * DIR. Sockets have short paths whatever DIR is. Immutable after layout_make. */
#ifndef APP_UP_LAYOUT_H
#define APP_UP_LAYOUT_H

#include "app/supervise/process.h"
#include "base/status.h"

#define LAYOUT_DIR_MAX  512
#define LAYOUT_PATH_MAX PROCESS_PATH_MAX

struct layout {
    char dir[LAYOUT_DIR_MAX];  /* absolute, no links in it */
    char home[LAYOUT_DIR_MAX]; /* DIR, or where the databases' accounts can reach */
    struct account postgres, redis;

    char postgres_data[LAYOUT_PATH_MAX];
    char redis_data[LAYOUT_PATH_MAX];
    char journal[LAYOUT_PATH_MAX];
    char log[LAYOUT_PATH_MAX];
    char run[LAYOUT_PATH_MAX]; /* pid files */

    char sockets[LAYOUT_PATH_MAX];
    char postgres_sockets[LAYOUT_PATH_MAX]; /* folder */
    char redis_socket[LAYOUT_PATH_MAX];
    char engine_socket[LAYOUT_PATH_MAX];
};

/* Makes DIR alone, so that it can be locked: the path's absolute form goes to l->dir. */
MUST_CHECK enum status layout_open(struct layout *l, const char *dir, struct reason *why);
/* Makes all folders with their owners. */
MUST_CHECK enum status layout_make(struct layout *l, struct reason *why);
/* "DIR/name" into out[LAYOUT_PATH_MAX]; returns out. */
const char *layout_path(const struct layout *l, const char *name, char *out);

#endif
