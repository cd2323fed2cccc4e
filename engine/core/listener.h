/* The engine's Unix-domain socket. A socket file that nobody serves any more is replaced; one that
 * answers is left alone. In two steps, around the lock: a locked process makes no socket and
 * removes no file, so its socket's file stays behind, and the next start replaces it. */
#ifndef ENGINE_CORE_LISTENER_H
#define ENGINE_CORE_LISTENER_H

#include "base/status.h"

/* Clears the path and makes a socket, non-blocking, that isn't bound yet; the caller closes it.
 * ST_CONFLICT: another process serves the path, or it is something else than a socket; ST_INVALID:
 * over 107 bytes; ST_IO. */
MUST_CHECK enum status listener_open(const char *path, int *fd, struct reason *why);
/* Binds it, with mode 0600, and listens. ST_CONFLICT: the path is taken since; ST_IO. */
MUST_CHECK enum status listener_start(const char *path, int fd, struct reason *why);

#endif
