/* The engine's Unix-domain socket. A socket file that nobody serves any more is replaced; one that
 * answers is left alone. */
#ifndef ENGINE_CORE_LISTENER_H
#define ENGINE_CORE_LISTENER_H

#include "base/status.h"

/* Binds, mode 0600, non-blocking. ST_CONFLICT: another process serves it, or the path is something
 * else than a socket; ST_INVALID: a path over 107 bytes; ST_IO. */
MUST_CHECK enum status listener_open(const char *path, int *fd, struct reason *why);
void listener_close(const char *path, int fd);

#endif
