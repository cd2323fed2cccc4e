/* Jobs of the engine process: between the frames of connections and the scheduler's sequences.
 * Turns SUBMIT and CANCEL into scheduler calls, and the scheduler's events into STEP entries and
 * FINAL frames. A choice that fails fails its job: the others are cancelled by jobs_settle, since
 * events must not call the scheduler. Belongs to the scheduler's thread. */
#ifndef ENGINE_CORE_JOBS_H
#define ENGINE_CORE_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/core/cache_key.h"
#include "engine/core/conn.h"
#include "engine/core/orphans.h"
#include "engine/core/scheduler.h"
#include "engine/text/tokenizer.h"
#include "engine/wire/wire.h"

struct job;

struct jobs {
    struct scheduler *scheduler; /* borrowed, as the next */
    const struct tokenizer *tokenizer;
    struct token_ids model_ends; /* the tokenizer's end-of-generation ids */
    struct cache_domain cache;   /* of the engine's KV pages; each job has its own salt */
    uint64_t step;               /* of the STEP frames being built */
    uint32_t n;                  /* jobs whose memory is still in use */
    bool draining;               /* new ones are refused */
    struct job *failed;          /* a choice has failed, the others go on until jobs_settle */
    struct orphans orphans;      /* ends, for gateways to come */
    /* Scratch of a frame or an event. */
    struct buf lists, text;
    struct token_sample samples[WIRE_ENTRY_TOKENS_MAX];
};

/* For scheduler_new, with a struct jobs as arg. */
extern const struct scheduler_events jobs_events;

/* cache: what this engine's KV pages depend on, without a salt; its revision outlives the jobs. The
 * scheduler is set by the caller, since it is made with the jobs as its arg. ST_NO_MEMORY;
 * jobs_dispose is right also then. */
MUST_CHECK enum status jobs_init(struct jobs *j, const struct tokenizer *t,
                                 const struct cache_domain *cache);
void jobs_dispose(struct jobs *j);

/* Frames of a greeted connection. ST_CORRUPT: it broke the protocol. What is wrong with one job
 * alone ends that job, with a FINAL frame. */
MUST_CHECK enum status jobs_submit(struct jobs *j, struct conn *c, const struct wire_frame *f,
                                   int64_t now_us);
MUST_CHECK enum status jobs_cancel(struct jobs *j, struct conn *c, const struct wire_frame *f,
                                   int64_t now_us);

/* After each turn of the stepper: ends the jobs that a choice failed in it. */
void jobs_settle(struct jobs *j, int64_t now_us);
/* The connection has gone: its jobs are cancelled, their ends kept, and none refers to it any more.
 */
void jobs_drop(struct jobs *j, struct conn *c, int64_t now_us);
/* Ends a connection's jobs with ST_UNAVAILABLE: all, or those that never ran. */
void jobs_evict(struct jobs *j, struct conn *c, bool waiting_only, int64_t now_us);
/* Holds or resumes a connection's jobs as its credit says. */
void jobs_hold(struct conn *c);

#endif
