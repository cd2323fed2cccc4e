/* What the administrator's commands on the database share: where Postgres is and which pepper,
 * from --config FILE or from --conninfo TEXT and --pepper-file FILE. Main thread. */
#ifndef APP_ADMIN_H
#define APP_ADMIN_H

#include <stdbool.h>

#include "base/status.h"
#include "store/pg.h"

struct admin_options {
    const char *config, *conninfo, *pepper_file;
};

struct admin {
    struct pg *pg;
    char *pepper; /* "" unless asked for; wiped by admin_dispose */
};

/* Whether the options say where Postgres is (and the pepper). */
bool admin_options_suffice(const struct admin_options *o, bool with_pepper);
MUST_CHECK enum status admin_init(struct admin *a, const struct admin_options *o, bool with_pepper,
                                  struct reason *why);
void admin_dispose(struct admin *a);
/* "sluice COMMAND: reason" on standard error; returns the exit code 1. */
int admin_failed(const char *command, enum status s, const struct reason *why);

#endif
