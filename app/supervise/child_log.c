#include "app/supervise/child_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Then the other children have their turn. */
#define READS_PER_TURN 16

void child_log_init(struct child_log *l)
{
    memset(l, 0, sizeof *l);
    l->fd = -1;
}

enum status child_log_open(struct child_log *l, int *write_fd, struct reason *why)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) == -1)
        return fail(why, ST_IO, "no pipe for a child's output: %s", strerror(errno));
    /* Only this end: the child writes as into a file. */
    if (fcntl(fds[0], F_SETFL, O_NONBLOCK) == -1) {
        close(fds[0]);
        close(fds[1]);
        return fail(why, ST_IO, "no pipe for a child's output: %s", strerror(errno));
    }
    child_log_init(l);
    l->fd = fds[0];
    *write_fd = fds[1];
    return ST_OK;
}

static void note(struct child_log *l, char c)
{
    if (c != '\n') {
        if (l->n_begun < sizeof l->begun - 1)
            l->begun[l->n_begun++] = c;
        return;
    }
    last_lines_add(&l->lines, l->begun, l->n_begun);
    l->n_begun = 0;
}

static void pass_on(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, data, len);

        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nobody reads: the child must not wait for that */
        data += n;
        len -= (size_t)n;
    }
}

void child_log_drain(struct child_log *l)
{
    char chunk[4096];
    ssize_t n;

    for (int i = 0; i < READS_PER_TURN && l->fd != -1; i++) {
        n = read(l->fd, chunk, sizeof chunk);
        if (n == -1 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close(l->fd);
            l->fd = -1;
            return;
        }
        for (ssize_t k = 0; k < n; k++)
            note(l, chunk[k]);
        pass_on(chunk, (size_t)n);
    }
}

void child_log_close(struct child_log *l)
{
    child_log_drain(l);
    note(l, '\n'); /* what it said last may have no end */
    if (l->fd != -1)
        close(l->fd);
    l->fd = -1;
}
