#include "app/supervise/files.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Open folders of a walk; initdb's tree is three deep. */
#define WALK_FDS 16

static enum status failed(struct reason *why, const char *path)
{
    int error = errno;

    return fail(why, error == ENOSPC || error == EDQUOT ? ST_NO_SPACE : ST_IO, "%s: %s", path,
                strerror(error));
}

void file_put_aside(const char *path, off_t bytes_max)
{
    char aside[PATH_MAX];
    struct stat s;

    if ((size_t)snprintf(aside, sizeof aside, "%s.1", path) >= sizeof aside)
        return;
    if (stat(path, &s) == 0 && s.st_size > bytes_max && rename(path, aside) == -1)
        unlink(path);
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static bool write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return fsync(fd) == 0;
}

enum status file_write(const char *path, const void *data, size_t len, mode_t mode,
                       struct reason *why)
{
    char beside[PATH_MAX];
    enum status st;
    int fd;

    if ((size_t)snprintf(beside, sizeof beside, "%s.new", path) >= sizeof beside)
        return fail(why, ST_TOO_LARGE, "%s: the path is too long", path);
    unlink(beside);
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd == -1)
        return failed(why, path);
    if (!write_all(fd, data, len) || fchmod(fd, mode) == -1 || rename(beside, path) == -1) {
        st = failed(why, path);
        unlink(beside);
        close(fd);
        return st;
    }
    close(fd);
    return ST_OK;
}

enum status file_read(const char *path, char *out, size_t size)
{
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd == -1)
        return errno == ENOENT ? ST_NOT_FOUND : ST_IO;
    n = read(fd, out, size - 1);
    close(fd);
    if (n == -1)
        return ST_IO;
    while (n > 0 && strchr(" \t\r\n", out[n - 1]) != NULL)
        n--;
    out[n] = '\0';
    return ST_OK;
}

enum status folder_make(const char *path, mode_t mode, struct reason *why)
{
    char part[PATH_MAX];
    struct stat s;

    if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part)
        return fail(why, ST_TOO_LARGE, "%s: the path is too long", path);
    for (char *slash = strchr(part + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0755) == -1 && errno != EEXIST)
            return failed(why, part);
        *slash = '/';
    }
    if (mkdir(path, mode) == -1 && errno != EEXIST)
        return failed(why, path);
    if (stat(path, &s) == -1)
        return failed(why, path);
    if (!S_ISDIR(s.st_mode))
        return fail(why, ST_CONFLICT, "%s is not a folder", path);
    return ST_OK;
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s;
    (void)kind;
    (void)at;
    return remove(path);
}

enum status folder_remove(const char *path, struct reason *why)
{
    if (!file_exists(path))
        return ST_OK;
    if (nftw(path, remove_one, WALK_FDS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == -1)
        return failed(why, path);
    return ST_OK;
}
