/* Connections on this machine (unix(7)). Any thread. */
#ifndef BASE_UNIX_SOCKET_H
#define BASE_UNIX_SOCKET_H

/* A stream that doesn't block, connected at once, closed at exec; the caller closes it. -1: nobody
 * listens there, or the path is empty or over 107 bytes. */
int unix_socket_connect(const char *path);

#endif
