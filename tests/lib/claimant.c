#include "tests/lib/claimant.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/wire/wire.h"

struct id claimant_id(uint64_t run, uint8_t number)
{
    struct id id = {.bytes = {[8] = number, [9] = (uint8_t)~number, [10] = 'c'}};

    memcpy(id.bytes, &run, sizeof run);
    return id;
}

static void say(struct claimant *c, struct buf *b)
{
    assert(!b->failed && send(c->fd, b->data, b->len, MSG_NOSIGNAL) == (ssize_t)b->len);
    buf_dispose(b);
}

void claimant_put_hello(struct buf *out)
{
    static const struct wire_hello hello = {
        .version_min = WIRE_VERSION_MIN, .version_max = WIRE_VERSION_MAX, .build = "claimant"};

    wire_put_hello(out, &hello);
}

void claimant_open(struct claimant *c, int fd, uint64_t run)
{
    struct buf out;

    *c = (struct claimant){.fd = fd, .run = run};
    buf_init(&c->in);
    buf_init(&out);
    claimant_put_hello(&out);
    say(c, &out);
}

void claimant_claim(struct claimant *c, const uint8_t *numbers, size_t n)
{
    struct wire_requests v = {.n = 0};
    struct buf out;

    assert(n <= WIRE_CLAIM_MAX);
    for (size_t i = 0; i < n; i++) {
        if (c->requests[numbers[i]].is_owed)
            continue;
        c->requests[numbers[i]].is_owed = true;
        v.ids[v.n++] = claimant_id(c->run, numbers[i]);
    }
    buf_init(&out);
    if (v.n == 0)
        return;
    wire_put_claim(&out, &v);
    say(c, &out);
}

void claimant_release(struct claimant *c, const uint8_t *numbers, size_t n)
{
    struct wire_requests v = {.n = (uint32_t)n};
    struct buf out;

    assert(n <= WIRE_CLAIM_MAX);
    for (size_t i = 0; i < n; i++) {
        v.ids[i] = claimant_id(c->run, numbers[i]);
        c->requests[numbers[i]].is_released = c->requests[numbers[i]].has_ended;
    }
    buf_init(&out);
    if (n == 0)
        return;
    wire_put_release(&out, &v);
    say(c, &out);
}

static void take_answer(struct claimant *c, const struct wire_settled *v)
{
    const uint8_t number = v->request.bytes[8];
    const struct id id = claimant_id(c->run, number);

    assert(id_equal(&id, &v->request));
    assert(c->requests[number].is_owed);
    c->requests[number].is_owed = false;
    assert(!v->is_known || !c->requests[number].is_released);
    c->requests[number].has_ended |= v->is_known;
}

static void take_frame(struct claimant *c, const struct wire_frame *f)
{
    struct wire_settled v;

    assert(f->type == WIRE_WELCOME || f->type == WIRE_STATS || f->type == WIRE_SETTLED ||
           f->type == WIRE_HANDOVER);
    if (f->type != WIRE_SETTLED)
        return;
    assert(wire_get_settled(f, &v) == ST_OK);
    take_answer(c, &v);
}

void claimant_hear(struct claimant *c)
{
    struct wire_frame f;
    size_t at = 0, used;
    char some[4096];
    ssize_t n;

    while ((n = recv(c->fd, some, sizeof some, 0)) > 0)
        buf_append(&c->in, some, (size_t)n);
    /* It gave no reason to be sent away. */
    assert(n == -1 && errno == EAGAIN && !c->in.failed);
    while (at < c->in.len &&
           wire_scan(c->in.data + at, c->in.len - at, &f, &used) == WIRE_SCAN_FRAME) {
        take_frame(c, &f);
        at += used;
    }
    buf_consume(&c->in, at);
}

void claimant_close(struct claimant *c)
{
    assert(c->in.len == 0);
    for (size_t i = 0; i < CLAIMANT_REQUESTS; i++)
        assert(!c->requests[i].is_owed);
    close(c->fd);
    buf_dispose(&c->in);
}
