/* The engine process: one model on one device, served on a Unix-domain socket to the gateway's
 * loops. One thread owns device, KV pages, jobs and connections: between steps it reads and writes
 * sockets without waiting, and with nothing to do it sleeps in poll. Slow or stopped gateways cost
 * credit, never a step.
 *
 * open says in *why what is wrong before anything is served; run returns when it was told to stop
 * and the jobs are done. */
#ifndef ENGINE_CORE_ENGINE_PROCESS_H
#define ENGINE_CORE_ENGINE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/cost.h"
#include "engine/core/device.h"
#include "engine/core/lockdown.h"
#include "engine/core/memory_plan.h"

struct engine_process;

/* Strings are borrowed for the life of the process object. */
struct engine_process_config {
    const struct device_ops *device;
    const char *model_path;
    const char *socket_path;
    const char *build; /* printable, below 64 bytes; told to gateways */
    enum device_mode mode;
    enum kv_type kv_type;
    const char *isa;
    unsigned n_threads;      /* 0: the device's choice */
    uint32_t context_tokens; /* 0: the file's own */
    uint32_t max_sequences;
    uint32_t prefill_rows;   /* prompt tokens in a step, beside the decodes */
    int64_t step_ms;         /* predicted time of a step; 0: only prefill_rows bounds it */
    const struct cost *cost; /* of steps; NULL: measured before the first */
    bool warm; /* before open returns, all that is otherwise prepared when nothing else is to do */
    uint32_t queue_max;        /* jobs that wait */
    uint32_t tenant_queue_max; /* of one tenant; 0: queue_max alone */
    int64_t age_up_ms;         /* waiting so long lifts a job by a class; 0: never */
    bool prefix_cache;
    uint32_t prefix_cache_permille; /* of all pages: most cached ones of one tenant */
    size_t kv_bytes;                /* 0: a default, see kv_plan.h */
    uint32_t depth;        /* steps in flight: 1 for a device that computes in `complete` */
    uint64_t credit_bytes; /* frames a gateway may be behind */
    /* Other than LOCKDOWN_OFF: open locks the whole process in, for good, and must find it with one
     * thread; the socket's file then stays behind at the end. */
    enum lockdown_want lockdown;
    int64_t drain_ms; /* longest wait for running jobs at a stop */
    /* Longest wait for gateways to leave once another engine serves the path (WIRE_HANDOVER); then
     * it drains. */
    int64_t handover_ms;
    int64_t orphan_ms; /* without a gateway for so long it stops by itself; 0: never */
    /* Readable: stop (a signalfd or an eventfd). Refuses what waits, lets what runs finish within
     * drain_ms; readable once more: at once. */
    int stop_fd;
};

/* ST_CANCELLED: a stop came while it warmed. */
MUST_CHECK enum status engine_process_open(const struct engine_process_config *cfg,
                                           struct engine_process **out, struct reason *why);
/* What open would take, without taking it: all of *out but id, file and held_bytes. Looks at
 * cfg->device, model_path and the limits. */
MUST_CHECK enum status engine_process_plan(const struct engine_process_config *cfg,
                                           struct memory_need *out, struct reason *why);
void engine_process_run(struct engine_process *p);
/* It has run, and left because a monitor said that it isn't needed (WIRE_SLEEP). */
bool engine_process_was_idle(const struct engine_process *p);
void engine_process_close(struct engine_process *p); /* NULL is fine */

#endif
