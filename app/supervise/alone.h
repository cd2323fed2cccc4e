/* One supervisor at a time: a lock that lives as long as the process. */
#ifndef APP_SUPERVISE_ALONE_H
#define APP_SUPERVISE_ALONE_H

#include "base/status.h"

/* Makes and holds the file `path` until the process ends. ST_CONFLICT names the other's pid, and
 * says "`what` is in use by another sluice". ST_IO, ST_NO_SPACE. */
MUST_CHECK enum status alone_take(const char *path, const char *what, struct reason *why);

/* The same for the engines of the file whose engine.socket this is: every supervisor takes it
 * before it touches a file beside a socket, `sluice up` too, whose folder's lock `serve
 * --with-engine` with that folder's file would not see. */
MUST_CHECK enum status alone_take_engines(const char *engine_socket, struct reason *why);

#endif
