#include "engine/core/listener.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

static enum status address_of(const char *path, struct sockaddr_un *out, struct reason *why)
{
    size_t len = strlen(path);

    if (len == 0 || len >= sizeof out->sun_path)
        return fail(why, ST_INVALID, "the socket path %s has %zu bytes; 1 to %zu are possible",
                    path, len, sizeof out->sun_path - 1);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, path, len);
    return ST_OK;
}

static int bind_to(int fd, const struct sockaddr_un *a)
{
    return bind(fd, (const struct sockaddr *)a, sizeof *a);
}

/* Left behind by a process that is gone: a socket, and a connection to it is refused. */
static bool is_stale(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), rc, error;
    struct stat st;

    if (fd == -1)
        return false;
    rc = connect(fd, (const struct sockaddr *)a, sizeof *a);
    error = errno;
    close(fd);
    return rc == -1 && error == ECONNREFUSED && lstat(a->sun_path, &st) == 0 &&
           S_ISSOCK(st.st_mode);
}

static enum status take_path(int fd, const struct sockaddr_un *a, struct reason *why)
{
    if (bind_to(fd, a) == 0)
        return ST_OK;
    if (errno != EADDRINUSE)
        return fail(why, ST_IO, "cannot make the socket %s: %s", a->sun_path, strerror(errno));
    if (!is_stale(a))
        return fail(why, ST_CONFLICT, "%s is in use: another process serves it, or it is no socket",
                    a->sun_path);
    if (unlink(a->sun_path) == -1 || bind_to(fd, a) == -1)
        return fail(why, ST_IO, "cannot replace the socket %s: %s", a->sun_path, strerror(errno));
    return ST_OK;
}

enum status listener_open(const char *path, int *out, struct reason *why)
{
    struct sockaddr_un a;
    enum status s = address_of(path, &a, why);
    int fd;

    if (s != ST_OK)
        return s;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return fail(why, ST_IO, "cannot make a socket: %s", strerror(errno));
    s = take_path(fd, &a, why);
    /* Before listen nobody can connect, so there is no moment with a wider mode. */
    if (s == ST_OK && (chmod(path, 0600) == -1 || listen(fd, BACKLOG) == -1))
        s = fail(why, ST_IO, "cannot listen on %s: %s", path, strerror(errno));
    if (s != ST_OK) {
        close(fd);
        return s;
    }
    *out = fd;
    return ST_OK;
}

void listener_close(const char *path, int fd)
{
    if (fd == -1)
        return;
    unlink(path);
    close(fd);
}
