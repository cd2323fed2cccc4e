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

/* A dead socket goes; one that answers, or anything else, is not ours. */
static enum status clear_path(const struct sockaddr_un *a, struct reason *why)
{
    struct stat st;

    if (lstat(a->sun_path, &st) == -1)
        return ST_OK; /* where it is another error, bind will say so */
    if (!is_stale(a))
        return fail(why, ST_CONFLICT, "%s is in use: another process serves it, or it is no socket",
                    a->sun_path);
    if (unlink(a->sun_path) == -1)
        return fail(why, ST_IO, "cannot replace the socket %s: %s", a->sun_path, strerror(errno));
    return ST_OK;
}

enum status listener_open(const char *path, int *out, struct reason *why)
{
    struct sockaddr_un a;
    enum status s = address_of(path, &a, why);
    int fd;

    if (s == ST_OK)
        s = clear_path(&a, why);
    if (s != ST_OK)
        return s;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1)
        return fail(why, ST_IO, "cannot make a socket: %s", strerror(errno));
    /* The file that bind makes takes the socket's mode. */
    if (fchmod(fd, 0600) == -1) {
        s = fail(why, ST_IO, "cannot make a socket: %s", strerror(errno));
        close(fd);
        return s;
    }
    *out = fd;
    return ST_OK;
}

enum status listener_start(const char *path, int fd, struct reason *why)
{
    struct sockaddr_un a;
    enum status s = address_of(path, &a, why);

    if (s != ST_OK)
        return s;
    if (bind(fd, (const struct sockaddr *)&a, sizeof a) == -1)
        return fail(why, errno == EADDRINUSE ? ST_CONFLICT : ST_IO, "cannot make the socket %s: %s",
                    path, errno == EADDRINUSE ? "another process made it" : strerror(errno));
    if (listen(fd, BACKLOG) == -1)
        return fail(why, ST_IO, "cannot listen on %s: %s", path, strerror(errno));
    return ST_OK;
}
