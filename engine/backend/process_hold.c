/* Jobs for an engine that was unloaded while idle. They wait at this end, as frames, while it is
 * woken and loads; the first link that has one sends WAKE, and every link finds the engine by
 * itself. What waits is bounded in number and in bytes, as a queue in the engine would be. */
#include <stdlib.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/backend/process_state.h"
#include "engine/wire/wire.h"

/* As many as wait in an engine that is there, by default (engine.queue_max). */
#define HELD_JOBS_MAX 1024
/* Of one tenant: the others find room however many it sends. */
#define HELD_TENANT_JOBS_MAX (HELD_JOBS_MAX / 2)
/* Of their frames; half of what a link may have unsent. */
#define HELD_BYTES_MAX (32u << 20)

/* ---- the list, oldest first ---- */

static void append(struct held_jobs *h, struct process_job *j)
{
    j->held_prev = h->last;
    j->held_next = NULL;
    *(h->last != NULL ? &h->last->held_next : &h->first) = j;
    h->last = j;
    h->n++;
    h->bytes += j->frame.len;
    j->is_held = true;
}

/* Its frame stays. */
static void take_out(struct held_jobs *h, struct process_job *j)
{
    *(j->held_prev != NULL ? &j->held_prev->held_next : &h->first) = j->held_next;
    *(j->held_next != NULL ? &j->held_next->held_prev : &h->last) = j->held_prev;
    h->n--;
    h->bytes -= j->frame.len;
    j->is_held = false;
}

static void end(struct process_link *l, struct process_job *j, enum status status)
{
    const struct engine_end e = {.status = j->is_cancelled ? ST_CANCELLED : status};

    take_out(&l->held, j);
    buf_dispose(&j->frame);
    process_job_end(j, &e);
}

/* ---- in ---- */

static void watch_patience(struct process_link *l)
{
    const struct process_job *oldest = l->held.first;

    if (oldest == NULL)
        loop_timer_stop(l->loop, &l->held.timer);
    else
        loop_timer_start(l->loop, &l->held.timer,
                         int64_max(oldest->held_until_ms - loop_now_ms(l->loop), 0));
}

static bool is_full(const struct held_jobs *h, uint64_t tenant)
{
    uint32_t n = 0;

    for (const struct process_job *j = h->first; j != NULL; j = j->held_next)
        n += j->tenant == tenant;
    return h->n >= HELD_JOBS_MAX || n >= HELD_TENANT_JOBS_MAX;
}

enum status process_hold(struct process_link *l, struct process_job *j, const struct wire_submit *v)
{
    struct held_jobs *h = &l->held;

    if (is_full(h, v->tenant))
        return ST_OVERLOADED;
    buf_init(&j->frame);
    wire_put_submit(&j->frame, v);
    if (j->frame.failed || j->frame.len > HELD_BYTES_MAX - h->bytes) {
        enum status s = j->frame.failed ? ST_NO_MEMORY : ST_OVERLOADED;

        buf_dispose(&j->frame);
        return s;
    }
    j->held_until_ms = loop_now_ms(l->loop) + l->target->load_wait_ms;
    j->tenant = v->tenant;
    append(h, j);
    if (h->first == j) {
        watch_patience(l);
        process_link_hurry(l);
    }
    return ST_OK;
}

/* ---- out ---- */

void process_hold_send(struct process_link *l)
{
    struct process_job *j;

    while ((j = l->held.first) != NULL) {
        if (j->is_cancelled) {
            end(l, j, ST_CANCELLED);
            continue;
        }
        take_out(&l->held, j);
        buf_append(&l->out, j->frame.data, j->frame.len);
        buf_dispose(&j->frame);
    }
    watch_patience(l);
    process_link_flush(l);
}

void process_hold_end(struct process_link *l, enum status status)
{
    while (l->held.first != NULL)
        end(l, l->held.first, status);
    watch_patience(l);
}

void process_hold_cancel(struct process_job *j)
{
    loop_timer_start(j->link->loop, &j->link->held.timer, 0);
}

static void end_cancelled(struct process_link *l)
{
    struct process_job *next;

    for (struct process_job *j = l->held.first; j != NULL; j = next) {
        next = j->held_next;
        if (j->is_cancelled)
            end(l, j, ST_CANCELLED);
    }
}

/* Whoever let a request wait in vain is not believed again before it says more: the next ones are
 * refused at once. */
static void end_overdue(struct process_link *l)
{
    int64_t now_ms = loop_now_ms(l->loop);

    while (l->held.first != NULL && l->held.first->held_until_ms <= now_ms) {
        if (l->is_asleep) {
            log_warn(NULL, "engine.link", "socket=%s is not loaded after %lld s",
                     l->target->socket_path, (long long)l->target->load_wait_ms / 1000);
            (void)stats_cell_refuse(l->target->stats, "it was not loaded in time");
        }
        l->is_asleep = false;
        end(l, l->held.first, ST_ASLEEP);
    }
}

static void on_timer(void *arg)
{
    struct process_link *l = arg;

    end_cancelled(l);
    end_overdue(l);
    watch_patience(l);
}

void process_hold_init(struct process_link *l)
{
    l->held.timer = (struct loop_timer){.on_timer = on_timer, .arg = l};
}
