/* How requests ended, kept for a gateway that comes after theirs: those whose connection closed
 * while they ran, and those that ended on a connection, whose FINAL frame may never have been read
 * or whose record may never have reached the gateway's disk.
 *
 * Bounded, and nothing is allocated after init. When it is full the oldest end goes; first of
 * gateways that live, as long as those have more than half of it: they need theirs only if they die
 * within moments, an orphan waits for a process that has to start. Belongs to the scheduler's
 * thread. */
#ifndef ENGINE_CORE_ORPHANS_H
#define ENGINE_CORE_ORPHANS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "engine/wire/wire.h"

struct conn;

/* Above what may run and wait at one time with the default settings, twice. */
#define ORPHANS_MAX 4096
#define ORPHAN_NONE UINT32_MAX

struct orphan {
    struct wire_settled end;
    const struct conn *conn;     /* where it was told; NULL: that has closed */
    uint32_t bucket_next;        /* slot, here and below; ORPHAN_NONE: none */
    uint32_t age_prev, age_next; /* in the list of its kind; age_next also of free slots */
};

struct orphan_list {
    uint32_t first, last, n; /* oldest first */
};

struct orphans {
    struct orphan *slots; /* (cap) */
    uint32_t *buckets;    /* (cap) */
    uint32_t cap, first_free;
    struct orphan_list told, orphaned; /* conn is set; is NULL */
};

/* cap: a power of two. ST_NO_MEMORY; orphans_dispose is right also then. */
MUST_CHECK enum status orphans_init(struct orphans *o, uint32_t cap);
void orphans_dispose(struct orphans *o);

/* A request has ended with the counts of *end; `conn`: where FINAL goes, NULL: nowhere. An id that
 * is there already is replaced. */
void orphans_add(struct orphans *o, const struct id *request, const struct conn *conn,
                 const struct wire_final *end);
/* Its end, borrowed until the next change; NULL: not known. */
const struct wire_settled *orphans_find(const struct orphans *o, const struct id *request);
/* It was settled elsewhere. Unknown is no fault. */
void orphans_forget(struct orphans *o, const struct id *request);
/* The connection has closed. */
void orphans_leave(struct orphans *o, const struct conn *conn);

#endif
