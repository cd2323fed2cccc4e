/* The engine process's loop: sockets, a turn of the device, frames out, again. */
#include "engine/core/process_state.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/core/claims.h"

#define STATS_MS      250  /* four a second while something changes */
#define STATS_IDLE_MS 1000 /* else one a second, as a sign of life */

/* ---- connections ---- */

struct conn_list engine_process_conns(const struct engine_process *p)
{
    return (struct conn_list){.conns = p->conns, .n = p->n_conns};
}

static void accept_all(struct engine_process *p)
{
    int fd;

    while ((fd = accept4(p->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) != -1) {
        struct conn *c = p->n_conns < CONNS_MAX ? malloc(sizeof *c) : NULL;

        if (c == NULL) {
            log_warn(NULL, "engine.conn", "refused: %u connections are open", p->n_conns);
            close(fd);
            continue;
        }
        conn_init(c, fd, p->cfg.credit_bytes);
        c->since_ms = clock_mono_ms();
        p->conns[p->n_conns++] = c;
    }
}

static void close_conn(struct engine_process *p, uint32_t i)
{
    const struct conn_list all = engine_process_conns(p);
    struct conn *c = p->conns[i];

    claims_drop(&all, c);
    jobs_drop(&p->jobs, c, clock_mono_us());
    conn_dispose(c);
    free(c);
    p->conns[i] = p->conns[--p->n_conns];
}

void engine_process_flush(struct engine_process *p)
{
    for (uint32_t i = p->n_conns; i-- > 0;) {
        struct conn *c = p->conns[i];

        conn_flush(c);
        jobs_hold(c);
        if (c->broken)
            close_conn(p, i);
    }
}

/* ---- state ---- */

static void put_stats(struct engine_process *p, const struct wire_stats *st)
{
    for (uint32_t i = 0; i < p->n_conns; i++) {
        struct conn *c = p->conns[i];

        /* Not behind other frames: who is slow gets fresh numbers later instead of old ones. */
        if (c->greeted && !conn_wants_write(c))
            wire_put_stats(&c->out, st);
    }
}

_Static_assert(ENGINE_PAGE_TOKENS == KV_PAGE_TOKENS, "the gateway says what a page holds");

static struct wire_stats collect(const struct engine_process *p)
{
    struct scheduler_stats s;
    bool has_work;

    scheduler_stats(p->scheduler, &s);
    has_work = s.running + s.waiting > 0;
    return (struct wire_stats){.running = s.running,
                               .waiting = s.waiting,
                               .pages_used = s.pages_used,
                               .pages_total = s.pages_total,
                               .rows_max = s.rows_max,
                               .steps = s.steps,
                               .prompt_tokens = s.prompt_tokens,
                               .output_tokens = s.output_tokens,
                               .preemptions = s.preemptions,
                               .prefix_query_tokens = s.prefix_query_tokens,
                               .prefix_hit_tokens = s.prefix_hit_tokens,
                               .not_finite = s.not_finite,
                               .last_step_age_ms =
                                   has_work ? (clock_mono_us() - p->progress.last_us) / 1000 : -1};
}

/* The age alone is no news: it changes by itself. */
static bool is_news(const struct wire_stats *a, const struct wire_stats *b)
{
    return a->steps != b->steps || a->running != b->running || a->waiting != b->waiting ||
           a->pages_used != b->pages_used;
}

static void report(struct engine_process *p)
{
    int64_t now_ms = clock_mono_ms();
    struct wire_stats st;
    bool is_due;

    if (now_ms < p->stats_due_ms || p->n_conns == 0)
        return;
    st = collect(p);
    is_due = p->stats_due_ms == 0 || now_ms - p->stats_sent_ms >= STATS_IDLE_MS;
    p->stats_due_ms = now_ms + STATS_MS;
    if (!is_due && !is_news(&st, &p->last_stats))
        return;
    p->last_stats = st;
    p->stats_sent_ms = now_ms;
    put_stats(p, &st);
    engine_process_flush(p);
}

/* ---- the loop ---- */

static int wait_ms(const struct engine_process *p)
{
    int64_t now_ms = clock_mono_ms(), until = INT64_MAX;

    if (p->is_busy)
        return 0;
    if (p->n_conns > 0)
        until = p->stats_due_ms;
    if (engine_process_end_due_ms(p) < until)
        until = engine_process_end_due_ms(p);
    /* While somebody is there STATS are due anyway. */
    if (p->n_conns == 0 && attendance_due_ms(&p->attendance) < until)
        until = attendance_due_ms(&p->attendance);
    if (until == INT64_MAX)
        return -1;
    return until <= now_ms ? 0 : (int)(until - now_ms < 60000 ? until - now_ms : 60000);
}

static void handle_sockets(struct engine_process *p)
{
    struct pollfd fds[CONNS_MAX + 2];
    uint32_t n = p->n_conns;

    for (uint32_t i = 0; i < n; i++)
        fds[i] = (struct pollfd){
            .fd = p->conns[i]->fd,
            .events = (short)(POLLIN | (conn_wants_write(p->conns[i]) ? POLLOUT : 0))};
    fds[n] = (struct pollfd){.fd = p->cfg.stop_fd, .events = POLLIN};
    fds[n + 1] = (struct pollfd){.fd = p->listen_fd, .events = POLLIN};
    if (poll(fds, n + 2, wait_ms(p)) <= 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (fds[i].revents & (POLLIN | POLLERR | POLLHUP))
            engine_process_read(p, p->conns[i]);
    if (fds[n].revents != 0)
        engine_process_take_stop(p);
    if (p->listen_fd != -1 && fds[n + 1].revents != 0)
        accept_all(p);
}

/* Only here has everybody's greeting been read that came during a long step. */
static void poll_sockets(struct engine_process *p)
{
    handle_sockets(p);
    p->is_orphaned = attendance_is_over(&p->attendance, p->conns, p->n_conns, clock_mono_ms());
    if (engine_process_was_idle(p))
        log_info(NULL, "engine.sleep", "nothing to do, and the last gateway has left");
    else if (p->is_orphaned)
        log_info(NULL, "engine.orphan", "no gateway for %lld s: this process ends",
                 (long long)p->cfg.orphan_ms / 1000);
}

bool engine_process_warm(struct engine_process *p)
{
    const struct device_ops *ops = p->device->ops;

    if (ops->warm != NULL && ops->warm(p->device))
        return true;
    if (p->has_cost)
        return false;
    engine_process_learn_cost(p);
    return true;
}

/* Jobs whose gateway doesn't read are held: that no step is made for them is no standstill. */
static bool has_work(const struct engine_process *p)
{
    for (uint32_t i = 0; i < p->n_conns; i++)
        if (p->conns[i]->jobs != NULL && !p->conns[i]->starved)
            return true;
    return false;
}

static void step(struct engine_process *p)
{
    struct scheduler_stats s;

    progress_begin(&p->progress, clock_mono_us());
    scheduler_stats(p->scheduler, &s);
    p->jobs.step = s.steps;
    /* It needs a device that nobody uses yet. */
    if (!p->has_cost && s.running + s.waiting > 0)
        engine_process_learn_cost(p);
    p->is_busy = stepper_turn(&p->stepper);
    jobs_settle(&p->jobs, clock_mono_us());
    if (!p->is_busy)
        p->is_busy = engine_process_warm(p);
    scheduler_stats(p->scheduler, &s);
    progress_note(&p->progress, s.steps, has_work(p), clock_mono_us());
}

void engine_process_turn(struct engine_process *p)
{
    poll_sockets(p);
    engine_process_flush(p);
    step(p);
    engine_process_flush(p);
    report(p);
}

bool engine_process_was_idle(const struct engine_process *p)
{
    return p->is_orphaned && p->attendance.is_leaving;
}

void engine_process_run(struct engine_process *p)
{
    while (!engine_process_is_over(p))
        engine_process_turn(p);
    /* Rows of evicted jobs may still be in flight. */
    while (stepper_turn(&p->stepper))
        continue;
    while (p->n_conns > 0)
        close_conn(p, p->n_conns - 1);
    log_info(NULL, "engine.stop", "done");
}
