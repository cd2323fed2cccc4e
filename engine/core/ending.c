/* How the engine process ends: told to stop it drains, handed over it waits until its gateways have
 * left, and without any gateway it goes by itself. */
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/core/process_state.h"

/* ---- draining ---- */

static void begin_drain(struct engine_process *p, int64_t now_ms)
{
    log_info(NULL, "engine.drain", "jobs=%u deadline_ms=%lld", p->jobs.n,
             (long long)p->cfg.drain_ms);
    p->jobs.draining = true;
    p->drain_deadline_ms = now_ms + p->cfg.drain_ms;
    engine_process_close_listener(p);
    for (uint32_t i = 0; i < p->n_conns; i++)
        jobs_evict(&p->jobs, p->conns[i], true, clock_mono_us());
}

void engine_process_take_stop(struct engine_process *p)
{
    char drop[sizeof(struct signalfd_siginfo)]; /* also room for an eventfd's count */
    int64_t now_ms = clock_mono_ms();

    if (read(p->cfg.stop_fd, drop, sizeof drop) == -1)
        return;
    if (p->jobs.draining)
        p->drain_deadline_ms = now_ms;
    else
        begin_drain(p, now_ms);
}

static bool is_flushed(const struct engine_process *p)
{
    for (uint32_t i = 0; i < p->n_conns; i++)
        if (conn_wants_write(p->conns[i]))
            return false;
    return true;
}

/* Past the deadline the rest ends with what it has, and what can be written now is written. */
static bool is_drained(struct engine_process *p)
{
    if (p->jobs.n == 0 && is_flushed(p))
        return true;
    if (clock_mono_ms() < p->drain_deadline_ms)
        return false;
    for (uint32_t i = 0; i < p->n_conns; i++)
        jobs_evict(&p->jobs, p->conns[i], false, clock_mono_us());
    engine_process_flush(p);
    return true;
}

/* ---- handing over ---- */

void engine_process_tell_handover(const struct engine_process *p, struct conn *c)
{
    if (p->is_handed_over && c->greeted && !c->is_monitor && c->version >= WIRE_VERSION_HANDOVER)
        wire_put_bare(&c->out, WIRE_HANDOVER);
}

void engine_process_hand_over(struct engine_process *p)
{
    if (p->is_handed_over)
        return;
    log_info(NULL, "engine.handover", "jobs=%u limit_ms=%lld", p->jobs.n,
             (long long)p->cfg.handover_ms);
    p->is_handed_over = true;
    p->handover_due_ms = clock_mono_ms() + p->cfg.handover_ms;
    p->socket_inode = 0; /* the path is another engine's: never to be removed by this one */
    p->attendance.is_leaving = false; /* it leaves as one that was replaced, not as an idle one */
    for (uint32_t i = 0; i < p->n_conns; i++)
        engine_process_tell_handover(p, p->conns[i]);
}

/* Who hasn't greeted yet may be a gateway; that it does so soon is attendance's matter. What was
 * kept of jobs that ended holds nobody up: it could only be claimed here by a gateway that is
 * there. */
static bool has_been_left(const struct engine_process *p)
{
    for (uint32_t i = 0; i < p->n_conns; i++)
        if (!p->conns[i]->is_monitor && !p->conns[i]->broken)
            return false;
    return p->jobs.n == 0;
}

/* ---- the end ---- */

bool engine_process_is_over(struct engine_process *p)
{
    if (p->is_orphaned || (p->is_handed_over && has_been_left(p)))
        return true;
    if (p->is_handed_over && !p->jobs.draining && clock_mono_ms() >= p->handover_due_ms)
        begin_drain(p, clock_mono_ms());
    return p->jobs.draining && is_drained(p);
}

int64_t engine_process_end_due_ms(const struct engine_process *p)
{
    if (p->jobs.draining)
        return p->drain_deadline_ms;
    return p->is_handed_over ? p->handover_due_ms : INT64_MAX;
}
