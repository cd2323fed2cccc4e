/* One question to a server of ours, one answer: is it ready? Local sockets only, short deadline. */
#ifndef APP_UP_PROBE_H
#define APP_UP_PROBE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Sends `question`, reads the first bytes that come back, NUL-terminated. */
bool probe_unix(const char *socket_path, const char *question, char *answer, size_t size);
/* The status code of GET path (-1: no answer), and the beginning of the response. address: where
 * the server listens; one that is no number, or any address, is asked on 127.0.0.1. */
int probe_http(const char *address, int port, const char *path, char *answer, size_t size);
/* ST_CONFLICT when something listens on 127.0.0.1:port, with the port in the reason. */
MUST_CHECK enum status probe_port_free(int port, const char *option, struct reason *why);

#endif
