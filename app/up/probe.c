#include "app/up/probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* A server of this machine that is up answers in less; the caller asks again. */
#define PROBE_TIMEOUT_US 500000

static int open_socket(int family)
{
    const struct timeval limit = {.tv_usec = PROBE_TIMEOUT_US};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd == -1)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == -1 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == -1) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Takes over fd. */
static bool ask(int fd, const struct sockaddr *to, socklen_t to_len, const char *question,
                char *answer, size_t size)
{
    size_t len = strlen(question);
    ssize_t n = -1;

    if (connect(fd, to, to_len) == 0 && send(fd, question, len, MSG_NOSIGNAL) == (ssize_t)len)
        n = recv(fd, answer, size - 1, 0);
    close(fd);
    if (n <= 0)
        return false;
    answer[n] = '\0';
    return true;
}

bool probe_unix(const char *socket_path, const char *question, char *answer, size_t size)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = open_socket(AF_UNIX);

    if (fd == -1)
        return false;
    snprintf(to.sun_path, sizeof to.sun_path, "%s", socket_path);
    return ask(fd, (const struct sockaddr *)&to, sizeof to, question, answer, size);
}

static struct sockaddr_in local_port(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

/* What a server at `address` can be reached at from here; the length of it. */
static socklen_t address_of(const char *address, int port, struct sockaddr_storage *out)
{
    struct sockaddr_in v4 = local_port(port);
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct in_addr to;

    if (inet_pton(AF_INET6, address, &v6.sin6_addr) == 1) {
        if (IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr))
            v6.sin6_addr = in6addr_loopback;
        memcpy(out, &v6, sizeof v6);
        return sizeof v6;
    }
    if (inet_pton(AF_INET, address, &to) == 1 && to.s_addr != htonl(INADDR_ANY))
        v4.sin_addr = to;
    memcpy(out, &v4, sizeof v4);
    return sizeof v4;
}

int probe_http(const char *address, int port, const char *path, char *answer, size_t size)
{
    struct sockaddr_storage to = {0};
    socklen_t to_len = address_of(address, port, &to);
    char question[256];
    int fd = open_socket(to.ss_family), code;

    if (fd == -1)
        return -1;
    snprintf(question, sizeof question,
             "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n\r\n", path, port);
    if (!ask(fd, (const struct sockaddr *)&to, to_len, question, answer, size))
        return -1;
    return sscanf(answer, "HTTP/1.1 %d", &code) == 1 ? code : -1;
}

enum status probe_port_free(int port, const char *option, struct reason *why)
{
    struct sockaddr_in at = local_port(port);
    int fd = open_socket(AF_INET), on = 1, error = 0;

    if (fd == -1)
        return fail(why, ST_IO, "no socket: %s", strerror(errno));
    /* As the gateway will: connections of an earlier run in TIME_WAIT don't count. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == -1 ||
        bind(fd, (const struct sockaddr *)&at, sizeof at) == -1 || listen(fd, 1) == -1)
        error = errno;
    close(fd);
    if (error == EADDRINUSE)
        return fail(why, ST_CONFLICT, "port %d on 127.0.0.1 is in use: choose another with %s",
                    port, option);
    if (error != 0)
        return fail(why, ST_IO, "port %d on 127.0.0.1: %s", port, strerror(error));
    return ST_OK;
}
