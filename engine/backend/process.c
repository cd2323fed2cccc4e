/* Jobs in an engine process, over its Unix socket: connects and reconnects by itself, greets,
 * checks that both sides have the same model, returns credit. One link per loop; never blocks. */
#include "engine/backend/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "base/utf8.h"
#include "engine/backend/job_table.h"
#include "engine/wire/wire.h"

/* A connect on this machine costs microseconds: an engine that comes back is found at once. One
 * that refuses us is asked more seldom. */
#define BACKOFF_MIN_MS     50
#define BACKOFF_MAX_MS     200
#define BACKOFF_REFUSED_MS 2000
#define READ_BYTES         65536
#define READS_PER_TURN     16 /* then the loop's other work has its turn */
/* Prompts that the engine has not read yet. It reads between two steps, so this is far above what
 * can gather in a step; past it the engine is stuck. */
#define OUT_BYTES_MAX (64u << 20)
/* The engine gives a sign of life every second, or after its step. One that is silent for so long
 * is frozen, and counts as dead: jobs that wait for it end, and it is ready when it greets again.
 */
#define SILENCE_MAX_MS 30000

enum link_state {
    LINK_DOWN,     /* no socket; the timer will try again */
    LINK_GREETING, /* HELLO is out */
    LINK_READY,    /* WELCOME was right */
};

struct process_link {
    struct backend_link super;
    const struct backend_target *target;
    struct loop *loop;
    enum link_state state;
    bool is_broken; /* found while callers are on the stack: taken down from the timer */
    int fd;
    struct loop_watch *watch;
    struct loop_timer timer, silence;
    int64_t backoff_ms, heard_ms;
    struct buf in, out;
    uint64_t consumed_bytes, credit_bytes;
    struct job_table jobs;
};

struct process_job {
    struct engine_job super;
    struct process_link *link;
    uint64_t number;
    bool is_cancelled;
    struct engine_usage usage; /* of the last frame */
    void *arg;
    void (*on_tokens)(void *arg, const char *text, size_t len, const struct engine_usage *so_far);
    void (*on_end)(void *arg, const struct engine_end *end);
};

/* ---- jobs ---- */

static void end_job(struct process_job *j, const struct engine_end *end)
{
    job_table_remove(&j->link->jobs, j->number);
    j->on_end(j->arg, end);
    free(j);
}

/* The engine is gone: the last frame received says what was generated. */
static void end_all(struct process_link *l)
{
    struct process_job *j;
    uint32_t at = 0;

    while ((j = job_table_next(&l->jobs, &at)) != NULL) {
        struct engine_end end = {.status = j->is_cancelled ? ST_CANCELLED : ST_UNAVAILABLE,
                                 .usage = j->usage};

        end_job(j, &end);
    }
}

/* ---- the connection ---- */

static void retry_later(struct process_link *l)
{
    loop_timer_start(l->loop, &l->timer, l->backoff_ms);
    l->backoff_ms = int64_min(l->backoff_ms * 2, int64_max(BACKOFF_MAX_MS, l->backoff_ms));
}

/* why: for the log; NULL: it was asked for. */
static void take_down(struct process_link *l, const char *why)
{
    bool was_ready = l->state == LINK_READY;

    if (l->state != LINK_DOWN && why != NULL)
        log_warn(NULL, "engine.link", "socket=%s jobs=%u: %s", l->target->socket_path,
                 l->jobs.n_jobs, why);
    loop_timer_stop(l->loop, &l->silence);
    loop_unwatch(l->loop, l->watch);
    l->watch = NULL;
    if (l->fd != -1)
        close(l->fd);
    l->fd = -1;
    l->state = LINK_DOWN;
    l->is_broken = false;
    buf_clear(&l->in);
    buf_clear(&l->out);
    l->consumed_bytes = 0;
    if (was_ready)
        stats_cell_disconnect(l->target->stats);
    retry_later(l);
    end_all(l);
}

static void set_interest(struct process_link *l)
{
    loop_interest(l->loop, l->watch, LOOP_READ | (l->out.len > 0 ? LOOP_WRITE : 0));
}

/* Callers may be in the middle of anything: the link is taken down from the timer. */
static void mark_broken(struct process_link *l)
{
    if (l->is_broken)
        return;
    l->is_broken = true;
    loop_timer_start(l->loop, &l->timer, 0);
}

static void flush(struct process_link *l)
{
    if (l->state == LINK_DOWN || l->is_broken)
        return;
    while (l->out.len > 0 && !l->out.failed) {
        ssize_t n = send(l->fd, l->out.data, l->out.len, MSG_NOSIGNAL);

        if (n >= 0) {
            buf_consume(&l->out, (size_t)n);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            mark_broken(l);
            return;
        }
    }
    if (l->out.failed)
        mark_broken(l);
    else
        set_interest(l);
}

/* ---- frames from the engine ---- */

static enum status on_welcome(struct process_link *l, const struct wire_frame *f)
{
    const struct backend_target *t = l->target;
    struct wire_welcome w;

    if (l->state != LINK_GREETING || wire_get_welcome(f, &w) != ST_OK ||
        w.version < WIRE_VERSION_MIN || w.version > WIRE_VERSION_MAX)
        return ST_CORRUPT;
    if (strcmp(w.revision, t->revision) != 0 || w.max_context < t->context_tokens) {
        log_error(NULL, "engine.link",
                  "socket=%s: the engine has revision=%.12s context=%u, we have revision=%.12s "
                  "context=%u",
                  t->socket_path, w.revision, w.max_context, t->revision, t->context_tokens);
        l->backoff_ms = BACKOFF_REFUSED_MS;
        return ST_CONFLICT;
    }
    l->state = LINK_READY;
    l->backoff_ms = BACKOFF_MIN_MS;
    l->credit_bytes = w.credit_bytes;
    stats_cell_connect(t->stats, w.pid, w.device, w.build);
    log_info(NULL, "engine.link", "connected pid=%u device=\"%s\" build=\"%s\"", w.pid, w.device,
             w.build);
    return ST_OK;
}

static enum status on_refused(struct process_link *l, const struct wire_frame *f)
{
    struct wire_refused r;

    if (wire_get_refused(f, &r) != ST_OK)
        return ST_CORRUPT;
    log_error(NULL, "engine.link", "socket=%s refused: %s (%s)", l->target->socket_path, r.text,
              status_name((enum status)r.status));
    l->backoff_ms = BACKOFF_REFUSED_MS;
    return ST_CONFLICT;
}

static enum status on_entry(struct process_link *l, const struct wire_step_entry *e)
{
    struct process_job *j = job_table_find(&l->jobs, e->job);

    if (j == NULL || e->output_tokens < j->usage.output_tokens ||
        !utf8_is_valid(e->text, e->text_len))
        return ST_CORRUPT;
    j->usage = (struct engine_usage){.prompt_tokens = e->prompt_tokens,
                                     .cached_tokens = e->cached_tokens,
                                     .output_tokens = e->output_tokens};
    if (!j->is_cancelled)
        j->on_tokens(j->arg, e->text, e->text_len, &j->usage);
    return ST_OK;
}

static enum status on_step(struct process_link *l, const struct wire_frame *f)
{
    struct wire_step_entry e;
    struct wire_step step;
    enum status s = wire_get_step(f, &step);

    while (s == ST_OK && wire_step_next(&step, &e))
        s = on_entry(l, &e);
    return s;
}

static enum status on_final(struct process_link *l, const struct wire_frame *f)
{
    struct engine_end end;
    struct process_job *j;
    struct wire_final v;

    if (wire_get_final(f, &v) != ST_OK || (j = job_table_find(&l->jobs, v.job)) == NULL)
        return ST_CORRUPT;
    end = (struct engine_end){.status = (enum status)v.status,
                              .finish = (enum engine_finish)v.finish,
                              .usage = {.prompt_tokens = v.prompt_tokens,
                                        .cached_tokens = v.cached_tokens,
                                        .output_tokens = v.output_tokens},
                              .queue_us = v.queue_us,
                              .prefill_us = v.prefill_us,
                              .decode_us = v.decode_us};
    end_job(j, &end);
    return ST_OK;
}

static enum status on_stats(struct process_link *l, const struct wire_frame *f)
{
    struct engine_stats s = {0};
    struct wire_stats v;

    if (wire_get_stats(f, &v) != ST_OK)
        return ST_CORRUPT;
    s.running = v.running;
    s.waiting = v.waiting;
    s.pages_used = v.pages_used;
    s.pages_total = v.pages_total;
    s.rows_max = v.rows_max;
    s.steps = v.steps;
    s.prompt_tokens = v.prompt_tokens;
    s.output_tokens = v.output_tokens;
    s.preemptions = v.preemptions;
    s.last_step_age_ms = v.last_step_age_ms;
    stats_cell_update(l->target->stats, &s, loop_now_ms(l->loop));
    return ST_OK;
}

static enum status on_frame(struct process_link *l, const struct wire_frame *f, size_t bytes)
{
    if (l->state == LINK_GREETING) {
        if (f->type == WIRE_REFUSED)
            return on_refused(l, f);
        return f->type == WIRE_WELCOME ? on_welcome(l, f) : ST_CORRUPT;
    }
    switch (f->type) {
    case WIRE_STEP:
        l->consumed_bytes += bytes;
        return on_step(l, f);
    case WIRE_FINAL:
        l->consumed_bytes += bytes;
        return on_final(l, f);
    case WIRE_STATS:
        return on_stats(l, f);
    default:
        return ST_CORRUPT;
    }
}

/* In portions: a frame of credit for every frame of tokens would double the traffic. */
static void return_credit(struct process_link *l)
{
    if (l->state != LINK_READY || l->consumed_bytes == 0 || l->consumed_bytes < l->credit_bytes / 4)
        return;
    wire_put_credit(&l->out, l->consumed_bytes);
    l->consumed_bytes = 0;
    flush(l);
}

static enum status handle_frames(struct process_link *l)
{
    struct wire_frame f;
    size_t at = 0, used;
    enum status s = ST_OK;

    while (s == ST_OK && at < l->in.len) {
        enum wire_scan scan = wire_scan(l->in.data + at, l->in.len - at, &f, &used);

        if (scan == WIRE_SCAN_MORE)
            break;
        s = scan == WIRE_SCAN_CORRUPT ? ST_CORRUPT : on_frame(l, &f, used);
        at += used;
    }
    if (s == ST_OK)
        buf_consume(&l->in, at);
    return s;
}

/* ST_CLOSED: the engine has gone. What it sent before is handled first: the ends of jobs. */
static enum status read_some(struct process_link *l)
{
    for (int i = 0; i < READS_PER_TURN; i++) {
        enum status s;
        ssize_t n;

        if (!buf_reserve(&l->in, READ_BYTES))
            return ST_NO_MEMORY;
        n = recv(l->fd, l->in.data + l->in.len, READ_BYTES, 0);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1 && errno == EAGAIN)
            return ST_OK;
        if (n <= 0)
            return ST_CLOSED;
        l->in.len += (size_t)n;
        l->heard_ms = loop_now_ms(l->loop);
        s = handle_frames(l);
        if (s != ST_OK)
            return s;
    }
    return ST_OK;
}

static void on_ready(void *arg, int events)
{
    struct process_link *l = arg;
    enum status s = ST_OK;

    if (events & LOOP_READ)
        s = read_some(l);
    if (s != ST_OK) {
        take_down(l, s == ST_CLOSED ? "the engine closed the connection" : status_text(s));
        return;
    }
    return_credit(l);
    flush(l);
}

static void watch_silence(struct process_link *l)
{
    loop_timer_start(l->loop, &l->silence, l->heard_ms + SILENCE_MAX_MS - loop_now_ms(l->loop));
}

/* If it was this loop that slept, what the engine said meanwhile is in the socket. */
static void on_silence(void *arg)
{
    struct process_link *l = arg;

    on_ready(l, LOOP_READ);
    if (l->state == LINK_DOWN)
        return;
    if (loop_now_ms(l->loop) - l->heard_ms >= SILENCE_MAX_MS)
        take_down(l, "the engine is silent");
    else
        watch_silence(l);
}

/* ---- connecting ---- */

static int connect_to(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd;

    if ((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s", path) >= sizeof a.sun_path)
        return -1;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* A Unix socket connects at once or not at all. */
    if (fd != -1 && connect(fd, (const struct sockaddr *)&a, sizeof a) == -1) {
        close(fd);
        return -1;
    }
    return fd;
}

static void greet(struct process_link *l)
{
    struct wire_hello hello = {.version_min = WIRE_VERSION_MIN, .version_max = WIRE_VERSION_MAX};

    snprintf(hello.build, sizeof hello.build, "%s", l->target->build);
    wire_put_hello(&l->out, &hello);
    l->state = LINK_GREETING;
    l->heard_ms = loop_now_ms(l->loop);
    watch_silence(l);
    flush(l);
}

static void try_connect(struct process_link *l)
{
    l->fd = connect_to(l->target->socket_path);
    if (l->fd != -1 && loop_watch(l->loop, l->fd, on_ready, l, &l->watch) != ST_OK) {
        close(l->fd);
        l->fd = -1;
    }
    if (l->fd == -1)
        retry_later(l);
    else
        greet(l);
}

static void on_timer(void *arg)
{
    struct process_link *l = arg;

    if (l->is_broken)
        take_down(l, "the connection broke");
    else
        try_connect(l);
}

/* ---- the ops ---- */

static enum status link_open(const struct backend_target *t, struct loop *loop,
                             struct backend_link **out)
{
    struct process_link *l = calloc(1, sizeof *l);

    if (l == NULL)
        return ST_NO_MEMORY;
    l->super.ops = &process_backend_ops;
    l->target = t;
    l->loop = loop;
    l->fd = -1;
    l->timer = (struct loop_timer){.on_timer = on_timer, .arg = l};
    l->silence = (struct loop_timer){.on_timer = on_silence, .arg = l};
    l->backoff_ms = BACKOFF_MIN_MS;
    l->out.limit = OUT_BYTES_MAX;
    job_table_init(&l->jobs);
    try_connect(l);
    *out = &l->super;
    return ST_OK;
}

static struct process_link *link_of(const struct backend_link *l)
{
    return CONTAINER_OF(l, struct process_link, super);
}

static void link_close(struct backend_link *super)
{
    struct process_link *l = link_of(super);

    take_down(l, NULL);
    loop_timer_stop(l->loop, &l->timer);
    buf_dispose(&l->in);
    buf_dispose(&l->out);
    job_table_dispose(&l->jobs);
    free(l);
}

static bool is_ready(const struct backend_link *super)
{
    const struct process_link *l = link_of(super);

    return l->state == LINK_READY && !l->is_broken;
}

static void put_submit(struct process_link *l, const struct process_job *j,
                       const struct engine_submit *s)
{
    struct wire_submit v = {.job = j->number,
                            .request = s->request,
                            .tenant = s->tenant,
                            .weight = s->weight != 0 ? s->weight : 1,
                            .max_tokens = s->max_tokens,
                            .sampling = {.temperature = s->temperature,
                                         .top_p = s->top_p,
                                         .top_k = s->top_k,
                                         .seed = s->seed},
                            .ignore_eos = s->ignore_eos,
                            .n_stops = (uint32_t)s->n_stops,
                            .n_prompt = s->n_prompt,
                            .prompt = s->prompt};

    for (size_t i = 0; i < s->n_stops; i++)
        v.stops[i] = (struct text_span){.text = s->stops[i].text, .len = s->stops[i].len};
    wire_put_submit(&l->out, &v);
}

/* What the engine's decoder refuses ends the connection and every job on it: so it isn't sent.
 * Compared so that NaN fails. */
static bool is_sampling_sendable(const struct engine_submit *s)
{
    return s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1 &&
           s->top_k >= 0;
}

static bool is_sendable(const struct process_link *l, const struct engine_submit *s)
{
    return is_sampling_sendable(s) && s->n_stops <= WIRE_STOPS_MAX && s->n_prompt > 0 &&
           s->n_prompt <= l->target->context_tokens &&
           s->n_prompt < (WIRE_FRAME_BYTES_MAX - 4096) / sizeof s->prompt[0];
}

static enum status submit(struct backend_link *super, const struct engine_submit *s,
                          struct engine_job **out)
{
    struct process_link *l = link_of(super);
    struct process_job *j;
    enum status status;

    if (!is_ready(super))
        return ST_UNAVAILABLE;
    if (!is_sendable(l, s))
        return ST_INVALID;
    j = calloc(1, sizeof *j);
    if (j == NULL)
        return ST_NO_MEMORY;
    *j = (struct process_job){.super.ops = &process_backend_ops,
                              .link = l,
                              .arg = s->arg,
                              .on_tokens = s->on_tokens,
                              .on_end = s->on_end};
    status = job_table_add(&l->jobs, j, &j->number);
    if (status != ST_OK) {
        free(j);
        return status;
    }
    put_submit(l, j, s);
    flush(l);
    *out = &j->super;
    return ST_OK;
}

static void cancel(struct engine_job *super)
{
    struct process_job *j = CONTAINER_OF(super, struct process_job, super);

    if (j->is_cancelled)
        return;
    j->is_cancelled = true;
    wire_put_cancel(&j->link->out, j->number);
    flush(j->link);
}

const struct backend_ops process_backend_ops = {.name = "process",
                                                .link_open = link_open,
                                                .link_close = link_close,
                                                .is_ready = is_ready,
                                                .submit = submit,
                                                .cancel = cancel};
