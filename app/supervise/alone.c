#include "app/supervise/alone.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "app/supervise/files.h"
#include "app/supervise/process.h"

enum status alone_take(const char *path, const char *what, struct reason *why)
{
    char pid[32] = "";
    int n, fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

    if (fd == -1)
        return fail(why, ST_IO, "%s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == -1) {
        if (file_read(path, pid, sizeof pid) != ST_OK)
            pid[0] = '\0';
        close(fd);
        return fail(why, ST_CONFLICT, "%s is in use by another sluice (pid %s)", what,
                    pid[0] != '\0' ? pid : "unknown");
    }
    /* The descriptor stays open: the lock lives as long as the process. */
    n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) == -1 || write(fd, pid, (size_t)n) != n)
        return fail(why, errno == ENOSPC ? ST_NO_SPACE : ST_IO, "%s: %s", path, strerror(errno));
    return ST_OK;
}

enum status alone_take_engines(const char *engine_socket, struct reason *why)
{
    char path[PROCESS_PATH_MAX];

    snprintf(path, sizeof path, "%.500s.lock", engine_socket);
    return alone_take(path, engine_socket, why);
}
