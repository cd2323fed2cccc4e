#include "tests/lib/hand_engine.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/core/listener.h"
#include "engine/wire/wire.h"
#include "tests/lib/fake_device.h"

bool hand_engine_has_come(void *arg)
{
    struct hand_engine *h = arg;

    h->fd = accept4(h->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    return h->fd != -1;
}

void hand_engine_send(int fd, const struct buf *b)
{
    ssize_t n = send(fd, b->data, b->len, MSG_NOSIGNAL);

    assert(n == (ssize_t)b->len);
}

static void greet(struct hand_engine *h, const char *revision, uint32_t context_tokens)
{
    struct wire_welcome w = {.version = WIRE_VERSION_MAX,
                             .max_sequences = 1,
                             .max_context = context_tokens,
                             .credit_bytes = 1000};
    struct buf b;

    assert(strlen(revision) < sizeof w.revision);
    strcpy(w.revision, revision);
    buf_init(&b);
    wire_put_welcome(&b, &w);
    hand_engine_send(h->fd, &b);
    buf_dispose(&b);
}

void hand_engine_listen(struct hand_engine *h, struct engine_rig *r)
{
    enum status s;

    *h = (struct hand_engine){.rig = r, .fd = -1};
    engine_rig_open(r, &fake_device_ops);
    s = listener_open(r->socket_path, &h->listen_fd, NULL);
    if (s == ST_OK)
        s = listener_start(r->socket_path, h->listen_fd, NULL);
    assert(s == ST_OK);
    engine_rig_await(r, hand_engine_has_come, h);
}

void hand_engine_open(struct hand_engine *h, struct engine_rig *r, const char *revision,
                      uint32_t context_tokens)
{
    hand_engine_listen(h, r);
    greet(h, revision != NULL ? revision : r->revision->hex,
          context_tokens != 0 ? context_tokens : r->revision->context_tokens);
}

bool hand_engine_has_left(void *arg)
{
    const struct hand_engine *h = arg;
    char drop[256];
    ssize_t n = recv(h->fd, drop, sizeof drop, MSG_DONTWAIT);

    return n == 0 || (n == -1 && errno == ECONNRESET);
}

void hand_engine_await_left(struct hand_engine *h)
{
    engine_rig_await(h->rig, hand_engine_has_left, h);
}

void hand_engine_close(struct hand_engine *h)
{
    close(h->listen_fd);
    if (h->fd != -1)
        close(h->fd);
    engine_rig_close(h->rig);
}
