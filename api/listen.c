#include "api/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 1024

static int set_option(int fd, int level, int name)
{
    int on = 1;

    return setsockopt(fd, level, name, &on, sizeof on);
}

/* Without SO_REUSEPORT, which would let two servers bind one port and hide the conflict. */
static int bind_socket(const struct addrinfo *ai)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int err;

    if (fd == -1)
        return -1;
    if (set_option(fd, SOL_SOCKET, SO_REUSEADDR) == 0 &&
        set_option(fd, IPPROTO_TCP, TCP_NODELAY) == 0 &&
        bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    err = errno;
    close(fd);
    errno = err;
    return -1;
}

enum status listen_open(const char *address, int port, int *out, struct reason *why)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
    };
    struct addrinfo *ai = NULL;
    char text[16];
    int fd, err;

    snprintf(text, sizeof text, "%d", port);
    err = getaddrinfo(address, text, &hints, &ai);
    if (err != 0)
        return fail(why, ST_INVALID, "can't listen on %s:%d: %s", address, port, gai_strerror(err));
    fd = bind_socket(ai);
    err = errno;
    freeaddrinfo(ai);
    if (fd == -1 && err == EADDRINUSE)
        return fail(why, ST_CONFLICT, "%s:%d is in use by another program", address, port);
    if (fd == -1)
        return fail(why, ST_IO, "can't listen on %s:%d: %s", address, port, strerror(err));
    *out = fd;
    return ST_OK;
}
