/* One gateway connection of the engine process: bytes in, frames out, credit. Never blocks. It
 * knows no scheduler: jobs.c puts frames into it. Belongs to the scheduler's thread. */
#ifndef ENGINE_CORE_CONN_H
#define ENGINE_CORE_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "engine/wire/wire.h"

struct job;

struct conn {
    int fd;
    int64_t since_ms; /* accepted (monotonic) */
    bool greeted;     /* HELLO was answered with WELCOME */
    uint16_t version; /* of the protocol, once greeted */
    bool is_monitor;  /* it only watches: no gateway */
    bool broken;      /* to be closed: the peer went, broke the protocol, or stopped reading */
    struct buf in, out;
    struct buf step;   /* the STEP frame being built; a long one is cut, and goes on in another */
    struct buf finals; /* FINAL frames that follow it */
    uint64_t credit_bytes, unacknowledged_bytes;
    bool starved; /* no credit left: its jobs are held */
    struct job *jobs;
};

/* Takes the descriptor. */
void conn_init(struct conn *c, int fd, uint64_t credit_bytes);
/* Closes it. */
void conn_dispose(struct conn *c);

/* Reads what is there (bounded per call); sets broken at end of file. */
void conn_read(struct conn *c);
/* The next whole frame, borrowed until conn_consume(*bytes); false: none, or broken. */
bool conn_next_frame(struct conn *c, size_t *at, struct wire_frame *out);
/* Forgets the first `bytes` of input. */
void conn_consume(struct conn *c, size_t bytes);

/* Moves the step's frames to the output, against credit, and writes what the socket takes. */
void conn_flush(struct conn *c);
static inline bool conn_wants_write(const struct conn *c)
{
    return c->out.len > 0;
}
/* `step`: the step's number, of the frame that begins with this entry. */
void conn_add_entry(struct conn *c, uint64_t step, const struct wire_step_entry *e);
void conn_acknowledge(struct conn *c, uint64_t bytes);

#endif
