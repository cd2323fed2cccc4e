#include "base/unix_socket.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int unix_socket_connect(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;

    /* That would be an abstract address, which anybody may have bound. */
    if (path[0] == '\0')
        return -1;
    if ((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s", path) >= sizeof a.sun_path)
        return -1;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* A Unix socket connects at once or not at all. */
    if (fd != -1 && connect(fd, (const struct sockaddr *)&a, sizeof a) == -1) {
        close(fd);
        return -1;
    }
    return fd;
}
