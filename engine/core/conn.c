#include "engine/core/conn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 65536
/* One connection's reads between two steps: a big prompt must not hold up the others' tokens. */
#define READS_PER_TURN 64
/* Over the credit there are at most one step's frames, and the ends of jobs that were refused or
 * cancelled; a gateway that lets more than this pile up has stopped. */
#define OUT_BYTES_OVER_CREDIT (16u << 20)
/* A STEP frame this long is cut: far above a step's tokens, far below WIRE_FRAME_BYTES_MAX. */
#define STEP_BYTES (256u << 10)

void conn_init(struct conn *c, int fd, uint64_t credit_bytes)
{
    memset(c, 0, sizeof *c);
    c->fd = fd;
    c->credit_bytes = credit_bytes;
    c->out.limit = credit_bytes + OUT_BYTES_OVER_CREDIT;
}

void conn_dispose(struct conn *c)
{
    close(c->fd);
    buf_dispose(&c->in);
    buf_dispose(&c->out);
    buf_dispose(&c->step);
    buf_dispose(&c->finals);
}

void conn_read(struct conn *c)
{
    for (int i = 0; i < READS_PER_TURN; i++) {
        ssize_t n;

        if (!buf_reserve(&c->in, READ_BYTES)) {
            c->broken = true;
            return;
        }
        n = recv(c->fd, c->in.data + c->in.len, READ_BYTES, 0);
        if (n > 0) {
            c->in.len += (size_t)n;
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            c->broken = true;
        return;
    }
}

bool conn_next_frame(struct conn *c, size_t *at, struct wire_frame *out)
{
    size_t used;

    if (c->broken || *at == c->in.len)
        return false;
    switch (wire_scan(c->in.data + *at, c->in.len - *at, out, &used)) {
    case WIRE_SCAN_FRAME:
        *at += used;
        return true;
    case WIRE_SCAN_CORRUPT:
        c->broken = true;
        return false;
    case WIRE_SCAN_MORE:
        break;
    }
    return false;
}

void conn_consume(struct conn *c, size_t bytes)
{
    buf_consume(&c->in, bytes);
}

static void move_out(struct conn *c, struct buf *from)
{
    c->unacknowledged_bytes += from->len;
    buf_append(&c->out, from->data, from->len);
    if (from->failed || c->out.failed)
        c->broken = true;
    buf_clear(from);
}

static void end_step(struct conn *c)
{
    if (c->step.len == 0)
        return;
    wire_step_end(&c->step);
    move_out(c, &c->step);
}

void conn_add_entry(struct conn *c, uint64_t step, const struct wire_step_entry *e)
{
    if (c->step.len >= STEP_BYTES)
        end_step(c);
    if (c->step.len == 0)
        wire_step_begin(&c->step, step);
    wire_step_add(&c->step, e);
}

static void write_out(struct conn *c)
{
    while (c->out.len > 0 && !c->broken) {
        ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL);

        if (n >= 0)
            buf_consume(&c->out, (size_t)n);
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            c->broken = true;
    }
}

void conn_flush(struct conn *c)
{
    end_step(c);
    move_out(c, &c->finals);
    write_out(c);
    c->starved = c->unacknowledged_bytes >= c->credit_bytes;
}

void conn_acknowledge(struct conn *c, uint64_t bytes)
{
    if (bytes > c->unacknowledged_bytes) {
        c->broken = true;
        return;
    }
    c->unacknowledged_bytes -= bytes;
    c->starved = c->unacknowledged_bytes >= c->credit_bytes;
}
