/* The private Redis of a folder: one Unix socket, append-only file, nothing evicted. */
#ifndef APP_UP_REDIS_SERVER_H
#define APP_UP_REDIS_SERVER_H

#include <stdbool.h>

#include "app/supervise/children.h"
#include "app/up/layout.h"
#include "base/status.h"

/* ST_NOT_FOUND when redis-server isn't on PATH. */
MUST_CHECK enum status redis_server_find(struct reason *why);
/* Fills everything of `c`; argv borrows from the layout. */
void redis_server_child(const struct layout *l, const char *argv[PROCESS_ARGS_MAX],
                        struct child *c);
/* It answers, and has loaded its file. */
bool redis_server_is_ready(const struct layout *l);

#endif
