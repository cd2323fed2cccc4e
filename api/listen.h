/* Binding the listeners' sockets. Blocking, at start. */
#ifndef API_LISTEN_H
#define API_LISTEN_H

#include "base/status.h"

/* A listening TCP socket, non-blocking. `address` is numeric (IPv4 or IPv6). ST_CONFLICT: in use.
 */
MUST_CHECK enum status listen_open(const char *address, int port, int *out, struct reason *why);

#endif
