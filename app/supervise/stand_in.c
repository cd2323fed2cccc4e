#include "app/supervise/stand_in.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/size.h"
#include "engine/core/listener.h"
#include "engine/wire/wire.h"

/* A greeting comes with the connection. */
#define CALLER_MS 1000

_Static_assert(sizeof((struct wire_refused *)0)->text == STAND_IN_TEXT_BYTES, "one text, one size");

void stand_in_init(struct stand_in *s, const char *socket_path)
{
    memset(s, 0, sizeof *s);
    s->socket_path = socket_path;
    s->listen_fd = -1;
}

static void set_text(struct stand_in *s, const char *text)
{
    size_t n = (size_t)snprintf(s->text, sizeof s->text, "%s", text);

    for (char *c = s->text; *c != '\0'; c++)
        if (*c < 0x20 || *c > 0x7E)
            *c = '?';
    if (n >= sizeof s->text)
        memcpy(s->text + sizeof s->text - 4, "...", 4);
}

enum status stand_in_start(struct stand_in *s, enum status status, const char *text,
                           struct reason *why)
{
    enum status st;

    s->status = status;
    s->is_woken = false;
    set_text(s, text);
    if (s->listen_fd != -1)
        return ST_OK;
    st = listener_open(s->socket_path, &s->listen_fd, why);
    if (st == ST_OK)
        st = listener_start(s->socket_path, s->listen_fd, why);
    if (st != ST_OK)
        stand_in_stop(s);
    return st;
}

void stand_in_stop(struct stand_in *s)
{
    while (s->n_callers > 0)
        close(s->callers[--s->n_callers].fd);
    if (s->listen_fd == -1)
        return;
    unlink(s->socket_path);
    close(s->listen_fd);
    s->listen_fd = -1;
}

unsigned stand_in_pollfds(const struct stand_in *s, struct pollfd *fds)
{
    if (s->listen_fd == -1)
        return 0;
    for (unsigned i = 0; i < s->n_callers; i++)
        fds[i] = (struct pollfd){.fd = s->callers[i].fd, .events = POLLIN};
    fds[s->n_callers] = (struct pollfd){
        .fd = s->n_callers < STAND_IN_CALLERS_MAX ? s->listen_fd : -1, .events = POLLIN};
    return s->n_callers + 1;
}

int64_t stand_in_due_ms(const struct stand_in *s)
{
    int64_t due_ms = INT64_MAX;

    for (unsigned i = 0; i < s->n_callers; i++)
        due_ms = int64_min(due_ms, s->callers[i].due_ms);
    return due_ms;
}

static void refuse(const struct stand_in *s, int fd)
{
    struct wire_refused r = {.status = (uint16_t)s->status};
    struct buf frame;

    memcpy(r.text, s->text, sizeof r.text);
    buf_init(&frame);
    wire_put_refused(&frame, &r);
    /* Far less than a socket's buffer; a caller that has gone needs no answer. */
    if (!frame.failed && send(fd, frame.data, frame.len, MSG_NOSIGNAL | MSG_DONTWAIT) == -1)
        errno = 0;
    buf_dispose(&frame);
}

/* A WAKE comes alone and whole, as its sender wrote it at once. */
static bool is_wake(const char *data, size_t len)
{
    struct wire_frame f;
    size_t used;

    return wire_scan(data, len, &f, &used) == WIRE_SCAN_FRAME && f.type == WIRE_WAKE &&
           wire_get_bare(&f) == ST_OK;
}

/* It is answered when its greeting is here, not before: one that is refused while it still writes
 * would see a broken pipe instead of the reason. */
static bool is_done(struct stand_in *s, unsigned i, int64_t now_ms)
{
    char greeting[512];
    ssize_t n = recv(s->callers[i].fd, greeting, sizeof greeting, MSG_DONTWAIT);

    if (n > 0) {
        refuse(s, s->callers[i].fd);
        s->is_woken |= s->status == ST_ASLEEP && is_wake(greeting, (size_t)n);
    }
    return n >= 0 || errno != EAGAIN || now_ms >= s->callers[i].due_ms;
}

static void accept_all(struct stand_in *s, int64_t now_ms)
{
    while (s->n_callers < STAND_IN_CALLERS_MAX) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd == -1)
            return;
        s->callers[s->n_callers].fd = fd;
        s->callers[s->n_callers++].due_ms = now_ms + CALLER_MS;
    }
}

void stand_in_turn(struct stand_in *s, int64_t now_ms)
{
    if (s->listen_fd == -1)
        return;
    accept_all(s, now_ms);
    for (unsigned i = s->n_callers; i-- > 0;) {
        if (!is_done(s, i, now_ms))
            continue;
        close(s->callers[i].fd);
        s->callers[i] = s->callers[--s->n_callers];
    }
}
