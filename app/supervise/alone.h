/* One supervisor at a time: a lock that lives as long as the process. */
#ifndef APP_SUPERVISE_ALONE_H
#define APP_SUPERVISE_ALONE_H

#include "base/status.h"

/* Makes and holds the file `path` until the process ends. ST_CONFLICT names the other's pid, and
 * says "`what` is in use by another sluice". ST_IO, ST_NO_SPACE. */
MUST_CHECK enum status alone_take(const char *path, const char *what, struct reason *why);

#endif
