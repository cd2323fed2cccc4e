#include "app/supervise/engine_watch.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "app/version.h"
#include "base/size.h"
#include "base/unix_socket.h"

/* A loading engine is looked for that often. */
#define RETRY_MS 200
/* STATS come at least every second: looked at as often, so that no wait is longer. */
#define LOOK_MS 1000
/* A turn that comes so late was not late by the engine's fault: this process slept. */
#define SLEPT_MS   5000
#define READ_BYTES 4096

void engine_watch_init(struct engine_watch *w, const char *socket_path, int64_t stall_ms)
{
    memset(w, 0, sizeof *w);
    w->socket_path = socket_path;
    w->stall_ms = stall_ms;
    w->fd = -1;
    buf_init(&w->in);
    buf_init(&w->out);
}

static void hang_up(struct engine_watch *w, int64_t now_ms)
{
    if (w->fd != -1)
        close(w->fd);
    w->fd = -1;
    buf_clear(&w->in);
    buf_clear(&w->out);
    w->has_stats = false;
    w->state = ENGINE_WATCH_AWAY;
    w->due_ms = now_ms + RETRY_MS;
}

void engine_watch_dispose(struct engine_watch *w)
{
    engine_watch_stop(w);
    buf_dispose(&w->in);
    buf_dispose(&w->out);
}

void engine_watch_start(struct engine_watch *w, int64_t now_ms)
{
    hang_up(w, now_ms);
    w->began_ms = w->turned_ms = w->due_ms = now_ms;
    w->greeted = false;
    w->refused[0] = '\0';
}

void engine_watch_stop(struct engine_watch *w)
{
    hang_up(w, 0);
    w->state = ENGINE_WATCH_OFF;
}

void engine_watch_hand_over(struct engine_watch *w)
{
    assert(w->state == ENGINE_WATCH_SEES && w->welcome.version >= WIRE_VERSION_HANDOVER);
    wire_put_bare(&w->out, WIRE_HANDOVER);
}

/* ---- what it says ---- */

static enum status on_welcome(struct engine_watch *w, const struct wire_frame *f)
{
    if (wire_get_welcome(f, &w->welcome) != ST_OK)
        return ST_CORRUPT;
    if (w->welcome.version < WIRE_VERSION_ADOPT)
        return ST_UNSUPPORTED;
    w->state = ENGINE_WATCH_SEES;
    w->greeted = true;
    wire_put_bare(&w->out, WIRE_MONITOR);
    return ST_OK;
}

static enum status on_frame(struct engine_watch *w, const struct wire_frame *f)
{
    struct wire_refused r;

    if (w->state == ENGINE_WATCH_SEES) {
        if (f->type != WIRE_STATS || wire_get_stats(f, &w->stats) != ST_OK)
            return ST_CORRUPT;
        w->has_stats = true;
        return ST_OK;
    }
    if (f->type == WIRE_WELCOME)
        return on_welcome(w, f);
    if (f->type != WIRE_REFUSED || wire_get_refused(f, &r) != ST_OK)
        return ST_CORRUPT;
    memcpy(w->refused, r.text, sizeof w->refused);
    w->refused_status = (enum status)r.status;
    return ST_CONFLICT;
}

static enum status handle(struct engine_watch *w)
{
    struct wire_frame f;
    size_t at = 0, used = 0;
    enum status s = ST_OK;

    while (s == ST_OK && at < w->in.len) {
        enum wire_scan scan = wire_scan(w->in.data + at, w->in.len - at, &f, &used);

        if (scan == WIRE_SCAN_MORE)
            break;
        s = scan == WIRE_SCAN_FRAME ? on_frame(w, &f) : ST_CORRUPT;
        at += used;
    }
    if (s == ST_OK)
        buf_consume(&w->in, at);
    return s;
}

/* All there is: while this process slept, the engine may have said much. */
static void read_all(struct engine_watch *w, int64_t now_ms)
{
    while (w->fd != -1) {
        ssize_t n = -1;

        if (buf_reserve(&w->in, READ_BYTES))
            n = recv(w->fd, w->in.data + w->in.len, READ_BYTES, MSG_DONTWAIT);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1 && errno == EAGAIN)
            return;
        if (n > 0) {
            w->in.len += (size_t)n;
            w->heard_ms = now_ms;
        }
        if (n <= 0 || handle(w) != ST_OK)
            hang_up(w, now_ms);
    }
}

static void write_all(struct engine_watch *w, int64_t now_ms)
{
    while (w->fd != -1 && w->out.len > 0) {
        ssize_t n = send(w->fd, w->out.data, w->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0)
            buf_consume(&w->out, (size_t)n);
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            hang_up(w, now_ms);
    }
}

/* ---- connecting ---- */

static void greet(struct engine_watch *w, int64_t now_ms)
{
    struct wire_hello hello = {.version_min = WIRE_VERSION_ADOPT, .version_max = WIRE_VERSION_MAX};

    w->fd = unix_socket_connect(w->socket_path);
    if (w->fd == -1) {
        w->due_ms = now_ms + RETRY_MS;
        return;
    }
    snprintf(hello.build, sizeof hello.build, "%s", version_text());
    wire_put_hello(&w->out, &hello);
    w->state = ENGINE_WATCH_GREETING;
    w->due_ms = now_ms + ENGINE_GREETING_MS;
}

/* ---- judging ---- */

static bool is_silent(const struct engine_watch *w, int64_t now_ms, struct reason *why)
{
    int64_t since_ms = w->greeted ? w->heard_ms : w->began_ms;
    int64_t limit_ms = w->greeted ? w->stall_ms : ENGINE_LOAD_MAX_MS;

    if (now_ms - since_ms < limit_ms)
        return false;
    (void)fail(why, ST_TIMEOUT,
               w->greeted ? "said nothing for %" PRId64 " s"
                          : "was still not ready after %" PRId64 " s",
               (now_ms - since_ms) / 1000);
    return true;
}

static bool is_stuck(const struct engine_watch *w, int64_t now_ms, struct reason *why)
{
    if (w->stall_ms == 0)
        return false;
    if (is_silent(w, now_ms, why))
        return true;
    if (!w->has_stats || w->stats.last_step_age_ms < w->stall_ms)
        return false;
    (void)fail(why, ST_TIMEOUT, "made no step for %" PRId64 " s while %u request%s waited",
               w->stats.last_step_age_ms / 1000, w->stats.running + w->stats.waiting,
               w->stats.running + w->stats.waiting == 1 ? "" : "s");
    return true;
}

/* Not the engine, but this process or the whole machine stood still: its limits begin anew. */
static void forgive_sleep(struct engine_watch *w, int64_t now_ms)
{
    int64_t slept_ms = now_ms - w->turned_ms;

    if (slept_ms >= SLEPT_MS) {
        w->heard_ms += slept_ms;
        w->began_ms += slept_ms;
        w->due_ms += slept_ms;
    }
    w->turned_ms = now_ms;
}

bool engine_watch_turn(struct engine_watch *w, int64_t now_ms, struct reason *why)
{
    if (w->state == ENGINE_WATCH_OFF)
        return false;
    forgive_sleep(w, now_ms);
    if (w->state == ENGINE_WATCH_AWAY && now_ms >= w->due_ms)
        greet(w, now_ms);
    write_all(w, now_ms);
    read_all(w, now_ms);
    write_all(w, now_ms); /* MONITOR */
    if (w->state == ENGINE_WATCH_GREETING && now_ms >= w->due_ms)
        hang_up(w, now_ms);
    return is_stuck(w, now_ms, why);
}

void engine_watch_send_to_sleep(struct engine_watch *w)
{
    if (w->state == ENGINE_WATCH_SEES && w->out.len == 0 &&
        w->welcome.version >= WIRE_VERSION_HANDOVER)
        wire_put_bare(&w->out, WIRE_SLEEP);
}

struct pollfd engine_watch_pollfd(const struct engine_watch *w)
{
    return (struct pollfd){.fd = w->fd, .events = (short)(POLLIN | (w->out.len > 0 ? POLLOUT : 0))};
}

int64_t engine_watch_due_ms(const struct engine_watch *w, int64_t now_ms)
{
    if (w->state == ENGINE_WATCH_OFF)
        return INT64_MAX;
    if (w->state == ENGINE_WATCH_SEES)
        return now_ms + LOOK_MS;
    return int64_min(w->due_ms, now_ms + LOOK_MS);
}
