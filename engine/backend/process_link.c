/* The connection to an engine process: connects and reconnects by itself, greets, reads, returns
 * credit, notices silence. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "base/unix_socket.h"
#include "engine/backend/process_state.h"
#include "engine/wire/wire.h"

#define READ_BYTES     65536
#define READS_PER_TURN 16 /* then the loop's other work has its turn */
/* Prompts that the engine has not read yet. It reads between two steps, so this is far above what
 * can gather in a step; past it the engine is stuck. */
#define OUT_BYTES_MAX (64u << 20)
/* A greeting is answered between two steps. One that isn't is made anew: whatever a step takes, the
 * engine finds a fresh one after it. */
#define GREETING_MAX_MS 5000

/* The engine is gone: the last frame received says what was generated. */
static void end_all(struct process_link *l)
{
    struct process_job *j;
    uint32_t at = 0;

    while ((j = job_table_next(&l->jobs, &at)) != NULL) {
        struct engine_end end;

        if (j->is_held)
            continue;
        end = (struct engine_end){.status = j->is_cancelled ? ST_CANCELLED : ST_UNAVAILABLE,
                                  .usage = j->usage};

        process_job_end(j, &end);
    }
}

static void retry_later(struct process_link *l)
{
    loop_timer_start(l->loop, &l->timer, l->backoff_ms);
    l->backoff_ms = int64_min(l->backoff_ms * 2, int64_max(BACKOFF_MAX_MS, l->backoff_ms));
}

void process_link_hurry(struct process_link *l)
{
    l->backoff_ms = BACKOFF_MIN_MS;
    if (l->state == LINK_DOWN)
        loop_timer_start(l->loop, &l->timer, 0);
}

/* why: for the log; NULL: it was asked for. */
static void take_down(struct process_link *l, const char *why)
{
    bool was_ready = l->state == LINK_READY;

    if (l->state != LINK_DOWN && why != NULL && (!l->is_handed_over || l->jobs.n_jobs > 0))
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

void process_link_flush(struct process_link *l)
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

/* In portions: a frame of credit for every frame of tokens would double the traffic. */
static void return_credit(struct process_link *l)
{
    if (l->state != LINK_READY || l->consumed_bytes == 0 || l->consumed_bytes < l->credit_bytes / 4)
        return;
    wire_put_credit(&l->out, l->consumed_bytes);
    l->consumed_bytes = 0;
    process_link_flush(l);
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
        s = process_frames_handle(l);
        if (s != ST_OK)
            return s;
    }
    return ST_OK;
}

static void on_ready(void *arg, int events)
{
    struct process_link *l = arg;
    enum status s = ST_OK;

    l->read_us = clock_mono_us();
    if (events & LOOP_READ)
        s = read_some(l);
    if (s != ST_OK) {
        /* What was unavailable, or sleeps, has said so itself. */
        take_down(l, s == ST_CLOSED                          ? "the engine closed the connection"
                     : s == ST_UNAVAILABLE || s == ST_ASLEEP ? NULL
                                                             : status_text(s));
        return;
    }
    return_credit(l);
    process_link_flush(l);
}

/* The engine gives a sign of life every second, or after its step: one that is silent for long is
 * frozen, and counts as dead. Jobs that wait for it end, and it is ready when it greets again.
 * INT64_MAX: it may be silent. */
static int64_t silence_max_ms(const struct process_link *l)
{
    if (l->state != LINK_READY)
        return GREETING_MAX_MS;
    return l->target->silence_ms != 0 ? l->target->silence_ms : INT64_MAX;
}

static void watch_silence(struct process_link *l)
{
    int64_t max_ms = silence_max_ms(l);

    if (max_ms == INT64_MAX)
        loop_timer_stop(l->loop, &l->silence);
    else
        loop_timer_start(l->loop, &l->silence, l->heard_ms + max_ms - loop_now_ms(l->loop));
}

/* If it was this loop that slept, what the engine said meanwhile is in the socket. */
static void on_silence(void *arg)
{
    struct process_link *l = arg;

    on_ready(l, LOOP_READ);
    if (l->state == LINK_DOWN)
        return;
    if (loop_now_ms(l->loop) - l->heard_ms < silence_max_ms(l)) {
        watch_silence(l);
        return;
    }
    (void)stats_cell_refuse(l->target->stats, "it says nothing");
    take_down(l, "the engine is silent");
}

/* ---- connecting ---- */

static void greet(struct process_link *l)
{
    struct wire_hello hello = {.version_min = WIRE_VERSION_MIN, .version_max = WIRE_VERSION_MAX};

    snprintf(hello.build, sizeof hello.build, "%s", l->target->build);
    if (l->wants_wake)
        wire_put_bare(&l->out, WIRE_WAKE);
    else
        wire_put_hello(&l->out, &hello);
    l->state = l->wants_wake ? LINK_WAKING : LINK_GREETING;
    l->wants_wake = false;
    l->heard_ms = loop_now_ms(l->loop);
    watch_silence(l);
    process_link_flush(l);
}

/* Who stood in for it has been away for longer than a load may take: its supervisor has gone, and
 * nobody would wake it. */
static void doubt_sleep(struct process_link *l)
{
    if (!l->is_asleep || loop_now_ms(l->loop) - l->heard_ms < l->target->load_wait_ms)
        return;
    l->is_asleep = false;
    (void)stats_cell_refuse(l->target->stats, "nobody answers at its socket");
}

static void try_connect(struct process_link *l)
{
    l->fd = unix_socket_connect(l->target->socket_path);
    if (l->fd != -1 && loop_watch(l->loop, l->fd, on_ready, l, &l->watch) != ST_OK) {
        close(l->fd);
        l->fd = -1;
    }
    if (l->fd != -1) {
        greet(l);
        return;
    }
    l->wants_wake = false; /* nobody stands in for it any more: it loads */
    doubt_sleep(l);
    retry_later(l);
}

static void on_timer(void *arg)
{
    struct process_link *l = arg;

    if (l->is_broken)
        take_down(l, "the connection broke");
    else
        try_connect(l);
}

void process_link_start(struct process_link *l)
{
    l->fd = -1;
    l->timer = (struct loop_timer){.on_timer = on_timer, .arg = l};
    l->silence = (struct loop_timer){.on_timer = on_silence, .arg = l};
    l->backoff_ms = BACKOFF_MIN_MS;
    l->out.limit = OUT_BYTES_MAX;
    process_hold_init(l);
    try_connect(l);
}

void process_link_stop(struct process_link *l)
{
    take_down(l, NULL);
    process_hold_end(l, ST_UNAVAILABLE);
    loop_timer_stop(l->loop, &l->timer);
}
