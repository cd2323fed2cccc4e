/* State of the engine process, shared by engine_process.c (its life), serve.c (its loop), frames.c
 * (what is asked of it) and ending.c (when it is over). Nobody else includes this, but for the fuzz
 * target that turns the loop itself. */
#ifndef ENGINE_CORE_PROCESS_STATE_H
#define ENGINE_CORE_PROCESS_STATE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/cgroup_memory.h"
#include "engine/core/attendance.h"
#include "engine/core/claims.h"
#include "engine/core/conn.h"
#include "engine/core/engine_process.h"
#include "engine/core/jobs.h"
#include "engine/core/lockdown.h"
#include "engine/core/progress.h"
#include "engine/core/stepper.h"
#include "engine/model/model.h"

/* A gateway has one per loop; two gateways overlap in an upgrade. */
#define CONNS_MAX 128

struct engine_process {
    struct engine_process_config cfg;
    struct model *model;
    struct tokenizer *tokenizer;
    struct device *device;
    uint32_t context_tokens, n_pages;
    struct cgroup_bound bound; /* of memory; read before the lock */
    bool has_cost;             /* what steps take was measured, or given */
    struct scheduler *scheduler;
    struct stepper stepper;
    struct jobs jobs;

    struct lockdown lock;
    int listen_fd;      /* -1: not any more */
    ino_t socket_inode; /* of the file that is removed at the end; 0: none is */
    struct conn *conns[CONNS_MAX];
    uint32_t n_conns;

    struct attendance attendance;
    bool is_orphaned; /* and so ends */

    bool is_busy; /* the last turn did something */
    struct progress progress;
    int64_t stats_due_ms; /* 0: now, whether there is news or not */
    int64_t stats_sent_ms;
    struct wire_stats last_stats;
    int64_t drain_deadline_ms; /* with jobs.draining */
    bool is_handed_over;       /* another engine serves our path now */
    int64_t handover_due_ms;   /* then it drains, whoever is still there */
};

/* A short piece of what makes the first steps quick. False: nothing is left to prepare. */
bool engine_process_warm(struct engine_process *p);
/* Measures what steps take, before the first one; a device that fails keeps unbounded steps. */
void engine_process_learn_cost(struct engine_process *p);
/* Sockets, a step of the device, frames out. Doesn't wait where is_busy. */
void engine_process_turn(struct engine_process *p);
/* Does what has come from a connection; a frame that is wrong, or not that connection's to send,
 * breaks it. */
void engine_process_read(struct engine_process *p, struct conn *c);
/* All of them, until one comes or goes. */
struct conn_list engine_process_conns(const struct engine_process *p);
/* Writes what the sockets take; connections that are broken go. */
void engine_process_flush(struct engine_process *p);

/* What there is on stop_fd: once, it drains; once more, the drain is over. */
void engine_process_take_stop(struct engine_process *p);
/* From now on its gateways are told that another engine serves the path; again: nothing. */
void engine_process_hand_over(struct engine_process *p);
/* The same to one that has just greeted, if it is handed over. */
void engine_process_tell_handover(const struct engine_process *p, struct conn *c);
/* Nothing is left to do here, or time is up. */
bool engine_process_is_over(struct engine_process *p);
/* When it may be over though no socket says anything; INT64_MAX: never. */
int64_t engine_process_end_due_ms(const struct engine_process *p);
/* Nobody connects any more; idempotent. */
void engine_process_close_listener(struct engine_process *p);

#endif
