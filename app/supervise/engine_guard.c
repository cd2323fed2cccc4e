#include "app/supervise/engine_guard.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/cmd_engine.h"
#include "app/supervise/state_file.h"
#include "base/log.h"
#include "base/size.h"

/* The engine's own limit for a drain is 20 s. */
#define UNLOAD_MS 25000

/* An engine that has still nothing to do, and a gateway of an older version or with a job on its
 * way, is asked again. */
#define SLEEP_AGAIN_MS 1000

static const char unloaded_text[] = "not loaded (sluice model load starts it)";
static const char idle_text[] = "not loaded, as nobody asked for it; the next request loads it";

void engine_guard_init(struct engine_guard *g, struct child *engine, const char *socket_path,
                       int64_t stall_ms, int64_t idle_ms)
{
    g->child = engine;
    g->idle_ms = idle_ms;
    memset(&g->idle, 0, sizeof g->idle);
    g->is_unloaded = false;
    g->unload_kill_ms = INT64_MAX;
    engine->is_watched = true;
    engine_watch_init(&g->watch, socket_path, stall_ms);
    stand_in_init(&g->stand_in, socket_path);
    state_file_path(socket_path, g->state_path);
}

void engine_guard_dispose(struct engine_guard *g)
{
    stand_in_stop(&g->stand_in);
    engine_watch_dispose(&g->watch);
    unlink(g->state_path);
}

/* A line of our own log without its time and level, which only cost room. */
static const char *line_text(const char *line)
{
    const char *at = line;

    if (!isdigit((unsigned char)line[0]))
        return line;
    for (int words = 0; words < 3 && at != NULL; words++) {
        at = strchr(at, ' ');
        if (at != NULL)
            at++;
    }
    return at != NULL ? at : line;
}

void engine_guard_text(const struct child *c, char *out, size_t size)
{
    const char *line = line_text(last_lines_newest(&c->lines)),
               *label = line[0] != '\0' ? "; last log: " : "";

    if (c->given_up)
        snprintf(out, size, "stopped after %u crashes: %s%s%s", c->backoff.deaths, c->cause, label,
                 line);
    else if (c->rests)
        snprintf(out, size, "left, because no gateway came; it starts with the next one");
    else
        snprintf(out, size, "starts again after: %s%s%s", c->cause, label, line);
}

static void write_state(const struct engine_guard *g, const char *state, const char *text)
{
    state_file_write(g->state_path, state, g->child->n_deaths, text,
                     g->child->n_deaths > 0 ? &g->child->lines : NULL);
}

void engine_guard_make_way(struct engine_guard *g)
{
    stand_in_stop(&g->stand_in);
}

void engine_guard_on_start(struct engine_guard *g, int64_t now_ms)
{
    memset(&g->idle, 0, sizeof g->idle);
    engine_watch_start(&g->watch, now_ms);
    write_state(g, "running", g->child->n_deaths > 0 ? g->child->last : "");
}

/* The state's word in the file, and the reason that its socket gives. */
static void stand_in(struct engine_guard *g, enum status status, const char *text)
{
    struct reason why = {0};

    write_state(g, engine_guard_state_name(engine_guard_state(g)), text);
    if (stand_in_start(&g->stand_in, status, text, &why) != ST_OK)
        log_error(NULL, "supervise.stand_in", "%s", why.text);
}

bool engine_guard_on_exit(struct engine_guard *g, int wait_status)
{
    if (!g->child->wanted || !WIFEXITED(wait_status) ||
        WEXITSTATUS(wait_status) != ENGINE_EXIT_IDLE)
        return false;
    g->idle.is_away = true;
    g->child->wanted = false;
    return true;
}

void engine_guard_on_end(struct engine_guard *g, const char *problem)
{
    char text[400];

    engine_watch_stop(&g->watch);
    g->unload_kill_ms = INT64_MAX;
    if (g->is_unloaded) {
        stand_in(g, ST_UNAVAILABLE, unloaded_text);
        return;
    }
    if (g->idle.is_away) {
        stand_in(g, ST_ASLEEP, idle_text);
        return;
    }
    if (!g->child->wanted)
        return;
    if (problem != NULL)
        snprintf(text, sizeof text, "%s", problem);
    else
        engine_guard_text(g->child, text, sizeof text);
    stand_in(g, ST_UNAVAILABLE, text);
}

void engine_guard_succeed(struct engine_guard *g, struct engine_watch *watch, int64_t now_ms)
{
    const struct engine_watch was = g->watch;

    g->watch = *watch;
    *watch = was;
    watch->socket_path = g->watch.socket_path;
    g->watch.socket_path = was.socket_path;
    child_try_again(g->child, now_ms); /* it may have been down, or given up */
    g->child->wanted = true;
    g->child->rests = false;
    g->child->ready_ms = now_ms;
    memset(&g->idle, 0, sizeof g->idle);
    g->idle.since_ms = now_ms;
    write_state(g, "running", g->child->n_deaths > 0 ? g->child->last : "");
}

/* ---- on demand ---- */

void engine_guard_unload(struct engine_guard *g, int64_t now_ms)
{
    if (g->is_unloaded)
        return;
    g->is_unloaded = true;
    g->idle.is_away = false;
    child_ask_to_stop(g->child);
    if (g->child->pid == 0) {
        stand_in(g, ST_UNAVAILABLE, unloaded_text);
        return;
    }
    g->unload_kill_ms = now_ms + UNLOAD_MS;
    write_state(g, engine_guard_state_name(ENGINE_GUARD_UNLOADING), "");
}

enum status engine_guard_load(struct engine_guard *g, int64_t now_ms, struct reason *why)
{
    if (g->is_unloaded && g->child->pid != 0)
        return fail(why, ST_CONFLICT, "it is still ending its requests: try again");
    g->is_unloaded = false;
    g->idle.is_away = false;
    g->child->wanted = true;
    child_try_again(g->child, now_ms);
    return ST_OK;
}

enum engine_guard_state engine_guard_state(const struct engine_guard *g)
{
    const struct child *c = g->child;

    if (g->is_unloaded)
        return c->pid != 0 ? ENGINE_GUARD_UNLOADING : ENGINE_GUARD_UNLOADED;
    if (g->idle.is_away)
        return ENGINE_GUARD_IDLE;
    if (c->given_up)
        return ENGINE_GUARD_STOPPED;
    if (c->pid == 0)
        return ENGINE_GUARD_WAITING;
    return c->ready_ms != 0 ? ENGINE_GUARD_READY : ENGINE_GUARD_LOADING;
}

const char *engine_guard_state_name(enum engine_guard_state s)
{
    static const char *const names[] = {"loading",   "ready",    "waiting", "stopped",
                                        "unloading", "unloaded", "idle"};

    return names[s];
}

/* ---- idle ---- */

/* By its own numbers: nothing runs or waits, and no step was made since. */
static void note_idleness(struct engine_guard *g, int64_t now_ms)
{
    const struct engine_watch *w = &g->watch;
    const struct wire_stats *s = &w->stats;

    if (w->has_stats && s->running + s->waiting == 0 && s->steps == g->idle.steps)
        return;
    g->idle.since_ms = now_ms;
    g->idle.steps = w->has_stats ? s->steps : 0;
}

static int64_t sleep_due_ms(const struct engine_guard *g)
{
    if (g->idle_ms == 0 || !g->child->wanted || !g->watch.has_stats)
        return INT64_MAX;
    return int64_max(g->idle.since_ms + g->idle_ms,
                     g->idle.asked_ms != 0 ? g->idle.asked_ms + SLEEP_AGAIN_MS : 0);
}

static void send_to_sleep(struct engine_guard *g, int64_t now_ms)
{
    note_idleness(g, now_ms);
    if (now_ms < sleep_due_ms(g))
        return;
    g->idle.asked_ms = now_ms;
    engine_watch_send_to_sleep(&g->watch);
}

void engine_guard_keep_awake(struct engine_guard *g, int64_t now_ms)
{
    g->idle.since_ms = now_ms;
}

static void wake(struct engine_guard *g, int64_t now_ms)
{
    struct reason why = {0};

    if (!g->stand_in.is_woken)
        return;
    g->stand_in.is_woken = false;
    if (g->idle.is_away && engine_guard_load(g, now_ms, &why) != ST_OK)
        log_error(NULL, "supervise.wake", "%s", why.text);
}

/* ---- turns ---- */

unsigned engine_guard_pollfds(const struct engine_guard *g, struct pollfd *fds)
{
    unsigned n = stand_in_pollfds(&g->stand_in, fds);

    fds[n] = engine_watch_pollfd(&g->watch);
    return n + 1;
}

int64_t engine_guard_due_ms(const struct engine_guard *g, int64_t now_ms)
{
    int64_t due_ms =
        int64_min(stand_in_due_ms(&g->stand_in), engine_watch_due_ms(&g->watch, now_ms));

    return int64_min(int64_min(due_ms, g->unload_kill_ms), sleep_due_ms(g));
}

bool engine_guard_turn(struct engine_guard *g, int64_t now_ms)
{
    struct reason why = {0};
    bool stuck;

    stand_in_turn(&g->stand_in, now_ms);
    wake(g, now_ms);
    if (now_ms >= g->unload_kill_ms) {
        g->unload_kill_ms = INT64_MAX;
        child_kill(g->child);
    }
    stuck = engine_watch_turn(&g->watch, now_ms, &why);
    if (g->watch.greeted && g->child->ready_ms == 0)
        g->child->ready_ms = now_ms;
    send_to_sleep(g, now_ms);
    if (!stuck || !g->child->wanted)
        return false;
    engine_watch_stop(&g->watch);
    child_end(g->child, why.text);
    return true;
}
