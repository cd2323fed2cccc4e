/* Follows the change log in Postgres on a thread of its own and hands its rows over in commit
 * order. NOTIFY only wakes it earlier. */
#ifndef AUTH_CHANGES_H
#define AUTH_CHANGES_H

#include <stdint.h>

#include "base/status.h"

/* Called on the follower's thread. */
struct change_sink {
    void *arg;
    void (*on_key)(void *arg, const char *public_id, int64_t position);
    void (*on_tenant)(void *arg, int64_t tenant_id, int64_t position);
    /* Anything may have changed: rows were missed, or another server answers. */
    void (*on_anything)(void *arg);
    /* All rows up to now were handed over; asked_ms (monotonic) is from before the question. */
    void (*on_followed)(void *arg, int64_t asked_ms);
    /* Postgres can't be reached, or has no change log. */
    void (*on_lost)(void *arg);
};

struct changes;

MUST_CHECK enum status changes_start(const char *conninfo, int64_t poll_ms,
                                     const struct change_sink *sink, struct changes **out);
void changes_stop(struct changes *c); /* NULL is fine */

#endif
