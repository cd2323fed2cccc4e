/* Jobs of the engine process: a sequence of the scheduler, its detokenizer, and the connection that
 * its frames go to. Turns SUBMIT and CANCEL into scheduler calls, and the scheduler's events into
 * STEP entries and FINAL frames. Belongs to the scheduler's thread. */
#ifndef ENGINE_CORE_JOBS_H
#define ENGINE_CORE_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/core/conn.h"
#include "engine/core/scheduler.h"
#include "engine/text/tokenizer.h"
#include "engine/wire/wire.h"

struct jobs {
    struct scheduler *scheduler; /* borrowed, as the next */
    const struct tokenizer *tokenizer;
    uint64_t step;  /* of the STEP frames being built */
    uint32_t n;     /* jobs whose memory is still in use */
    bool draining;  /* new ones are refused */
    struct buf ids; /* decoded prompts */
    struct buf text;
};

/* For scheduler_new, with a struct jobs as arg. */
extern const struct scheduler_events jobs_events;

void jobs_init(struct jobs *j, const struct tokenizer *t);
void jobs_dispose(struct jobs *j);

/* Frames of a greeted connection. ST_CORRUPT: it broke the protocol. What is wrong with one job
 * alone ends that job, with a FINAL frame. */
MUST_CHECK enum status jobs_submit(struct jobs *j, struct conn *c, const struct wire_frame *f,
                                   int64_t now_us);
MUST_CHECK enum status jobs_cancel(struct jobs *j, struct conn *c, const struct wire_frame *f,
                                   int64_t now_us);

/* The connection has gone: its jobs are cancelled, and none refers to it any more. */
void jobs_drop(struct jobs *j, struct conn *c, int64_t now_us);
/* Ends a connection's jobs with ST_UNAVAILABLE: all, or those that never ran. */
void jobs_evict(struct jobs *j, struct conn *c, bool waiting_only, int64_t now_us);
/* Holds or resumes a connection's jobs as its credit says. */
void jobs_hold(struct conn *c);

#endif
