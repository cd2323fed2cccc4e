/* State of a link to an engine process, shared by process.c (what callers ask for), process_link.c
 * (the connection), process_frames.c (what the engine says), process_hold.c (jobs that wait for an
 * idle engine to be loaded) and process_claim.c (requests of an earlier gateway). Nobody else
 * includes this. */
#ifndef ENGINE_BACKEND_PROCESS_STATE_H
#define ENGINE_BACKEND_PROCESS_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/loop.h"
#include "base/status.h"
#include "engine/backend/backend.h"
#include "engine/backend/job_table.h"
#include "engine/engine.h"
#include "engine/wire/wire.h"

/* A connect on this machine costs microseconds: an engine that comes back is found at once. One
 * that refuses us is asked more seldom. */
#define BACKOFF_MIN_MS     50
#define BACKOFF_MAX_MS     200
#define BACKOFF_REFUSED_MS 2000

enum link_state {
    LINK_DOWN,     /* no socket; the timer will try again */
    LINK_GREETING, /* HELLO is out */
    LINK_WAKING,   /* WAKE is; a REFUSED ends it, and HELLO is next */
    LINK_READY,    /* WELCOME was right */
};

/* Jobs that wait at this end; process_hold.c. */
struct held_jobs {
    struct process_job *first, *last; /* oldest first */
    uint32_t n;
    size_t bytes;            /* of their frames */
    struct loop_timer timer; /* the oldest has waited long enough, or one was cancelled */
};

struct process_link {
    struct backend_link super;
    const struct backend_target *target;
    struct loop *loop;
    enum link_state state;
    bool is_asleep;  /* it was unloaded while idle, and comes when it is woken: jobs are held */
    bool wants_wake; /* the next connection is for a WAKE */
    /* Since it was greeted: that the engine leaves, and what the one in its place has, is no news.
     */
    bool is_handed_over;
    bool is_broken; /* found while callers are on the stack: taken down from the timer */
    int fd;
    struct loop_watch *watch;
    struct loop_timer timer, silence;
    int64_t backoff_ms, heard_ms;
    int64_t read_us; /* monotonic; when this turn's reading began */
    struct buf in, out;
    struct buf samples; /* of the STEP frame being handled */
    uint16_t version;   /* of the protocol, when ready */
    uint64_t consumed_bytes, credit_bytes;
    struct job_table jobs; /* those that are held too */
    struct held_jobs held;
    struct engine_claim *claim; /* NULL: nobody asks */
};

struct process_job {
    struct engine_job super;
    struct process_link *link;
    uint64_t number;
    bool is_cancelled;
    bool is_held; /* not sent yet; and then: */
    struct process_job *held_prev, *held_next;
    struct buf frame; /* its SUBMIT */
    uint64_t tenant;
    int64_t held_until_ms; /* by the loop's clock */
    bool want_logprobs, want_prompt_logprobs;
    uint32_t n_choices, n_finished;
    uint64_t finished[ENGINE_CHOICES_MAX / 64]; /* choices, a bit each */
    struct engine_usage usage;                  /* of the last frame */
    void *arg;
    void (*on_delta)(void *arg, const struct engine_delta *d, const struct engine_usage *so_far);
    void (*on_end)(void *arg, const struct engine_end *end);
};

/* ---- process.c ---- */

/* Its on_end, and the end of its memory. */
void process_job_end(struct process_job *j, const struct engine_end *end);

/* ---- process_link.c ---- */

/* Connects, now and whenever the connection is lost, until process_link_stop. */
void process_link_start(struct process_link *l);
/* Ends the connection and its jobs. */
void process_link_stop(struct process_link *l);
/* Sends what l->out holds, as far as the socket takes it. */
void process_link_flush(struct process_link *l);
/* Somebody waits for the engine: where there is no connection, it is tried now and often. */
void process_link_hurry(struct process_link *l);

/* ---- process_hold.c ---- */

void process_hold_init(struct process_link *l);
/* Holds the job, which is in the table, until the engine is there, it is cancelled (ST_CANCELLED),
 * or load_wait_ms are over (ST_ASLEEP). ST_OVERLOADED: too many wait; ST_NO_MEMORY. */
MUST_CHECK enum status process_hold(struct process_link *l, struct process_job *j,
                                    const struct wire_submit *v);
/* The engine has greeted: all are its own now. */
void process_hold_send(struct process_link *l);
/* It won't come. Not from inside a caller's call. */
void process_hold_end(struct process_link *l, enum status status);
/* j->is_cancelled was set: it ends in the loop's next turn. */
void process_hold_cancel(struct process_job *j);

/* ---- process_claim.c ---- */

void process_claim(struct backend_link *super, struct engine_claim *c);
void process_unclaim(struct backend_link *super, struct engine_claim *c);
void process_release(struct backend_link *super, const struct id *request);
/* The engine has greeted: asks what is not answered yet. */
void process_claim_send(struct process_link *l);
/* A SETTLED frame. ST_CORRUPT. */
MUST_CHECK enum status process_claim_settled(struct process_link *l, const struct wire_frame *f);

/* ---- process_frames.c ---- */

/* Handles and drops the whole frames in l->in. Not ST_OK: the connection is of no more use. */
MUST_CHECK enum status process_frames_handle(struct process_link *l);

#endif
