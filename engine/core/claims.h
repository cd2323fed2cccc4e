/* CLAIM and RELEASE: a gateway asks how requests of an earlier one ended. What has ended is
 * answered at once from struct orphans; what runs is answered when it ends, whatever connection has
 * it (the engine may not have seen yet that the earlier gateway is gone); the rest is not known.
 * Belongs to the scheduler's thread. */
#ifndef ENGINE_CORE_CLAIMS_H
#define ENGINE_CORE_CLAIMS_H

#include <stdint.h>

#include "engine/core/conn.h"
#include "engine/core/jobs.h"
#include "engine/wire/wire.h"

/* All connections of the engine. */
struct conn_list {
    struct conn *const *conns;
    uint32_t n;
};

/* Every id of the frame is answered on `c` with one SETTLED frame, now or when it ends. A request
 * has one claimant: a later one takes the earlier one's place, who is told that it isn't known.
 * ST_CORRUPT. */
MUST_CHECK enum status claims_take(const struct jobs *j, const struct conn_list *all,
                                   struct conn *c, const struct wire_frame *f);
/* ST_CORRUPT. */
MUST_CHECK enum status claims_release(struct jobs *j, const struct wire_frame *f);
/* The connection closes: nothing is answered on it any more. */
void claims_drop(const struct conn_list *all, const struct conn *c);

#endif
