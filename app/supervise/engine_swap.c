#include "app/supervise/engine_swap.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"

/* The engine's own limits: 15 minutes for its gateways to leave, and 20 s for a drain. */
#define RETIRE_MS 925000
#define DRAIN_MS  25000

/* ---- describing ---- */

static void describe_argv(struct engine_swap *sw, const char *const *of_engine)
{
    const char *const more[] = {"--socket", sw->socket, "--warm", NULL};
    size_t n = 0;

    while (of_engine[n] != NULL) {
        sw->argv[n] = of_engine[n];
        n++;
    }
    assert(n + COUNT_OF(more) <= COUNT_OF(sw->argv));
    memcpy(sw->argv + n, more, sizeof more);
}

void engine_swap_init(struct engine_swap *sw, struct engine_guard *g, const struct child *engine,
                      const char *socket_path, int64_t stall_ms)
{
    *sw = (struct engine_swap){.guard = g, .state = ENGINE_SWAP_NONE, .due_ms = INT64_MAX};
    snprintf(sw->socket, sizeof sw->socket, "%.600s.next", socket_path);
    snprintf(sw->name, sizeof sw->name, "%.120s's successor", engine->spec.name);
    describe_argv(sw, engine->spec.argv);
    sw->other = (struct child){.spec = {.name = sw->name,
                                        .argv = sw->argv,
                                        .cwd = engine->spec.cwd,
                                        .death_signal = engine->spec.death_signal},
                               .stop_signal = engine->stop_signal,
                               .stop_ms = engine->stop_ms};
    snprintf(sw->other.pid_file, sizeof sw->other.pid_file, "%.600s.pid", sw->socket);
    engine_watch_init(&sw->watch, sw->socket, stall_ms);
}

void engine_swap_set_log(struct engine_swap *sw, const char *engine_log)
{
    size_t len = strlen(engine_log), end = sizeof ".log" - 1;

    assert(len > end && strcmp(engine_log + len - end, ".log") == 0);
    snprintf(sw->other.spec.log, sizeof sw->other.spec.log, "%.*s.next.log", (int)(len - end),
             engine_log);
}

void engine_swap_dispose(struct engine_swap *sw)
{
    engine_watch_dispose(&sw->watch);
    unlink(sw->socket);
}

enum status engine_swap_end_orphan(const struct engine_swap *sw, struct reason *why)
{
    enum status st = child_end_orphan(&sw->other, why);

    if (st == ST_OK)
        unlink(sw->socket);
    return st;
}

bool engine_swap_is_under_way(const struct engine_swap *sw)
{
    return sw->state == ENGINE_SWAP_LOADING || sw->state == ENGINE_SWAP_RETIRING;
}

const char *engine_swap_state_name(enum engine_swap_state s)
{
    static const char *const names[] = {"none", "loading", "retiring", "done", "failed"};

    return names[s];
}

/* ---- the successor ---- */

enum status engine_swap_start(struct engine_swap *sw, int64_t now_ms, struct reason *why)
{
    enum status st;

    if (sw->state == ENGINE_SWAP_LOADING)
        return fail(why, ST_CONFLICT, "a swap is under way: its successor (pid %d) loads",
                    (int)sw->other.pid);
    if (sw->state == ENGINE_SWAP_RETIRING)
        return fail(why, ST_CONFLICT,
                    "a swap is under way: the engine before it (pid %d) still ends its requests",
                    (int)sw->other.pid);
    unlink(sw->socket); /* of one that failed: a locked engine removes no file */
    st = child_start(&sw->other, now_ms, why);
    sw->other.wanted = false; /* never started again by itself */
    if (st != ST_OK)
        return st;
    sw->n++;
    sw->state = ENGINE_SWAP_LOADING;
    sw->reason[0] = '\0';
    sw->ready_ms = 0;
    sw->due_ms = now_ms + ENGINE_LOAD_MAX_MS;
    engine_watch_start(&sw->watch, now_ms);
    return ST_OK;
}

/* For what is said to be the cause. */
static void kill_other(struct engine_swap *sw, const char *cause)
{
    sw->due_ms = INT64_MAX;
    engine_watch_stop(&sw->watch);
    child_end(&sw->other, cause);
}

/* The engine that served has died: its successor is further on than it could be. */
static void hold_restart(struct engine_swap *sw)
{
    if (sw->guard->child->pid == 0)
        sw->guard->child->due_ms = INT64_MAX;
}

static void release_restart(struct engine_swap *sw, int64_t now_ms)
{
    if (sw->guard->child->due_ms == INT64_MAX)
        sw->guard->child->due_ms = now_ms;
}

/* ---- changing roles ---- */

/* The successor is there, and the engine before it can be told so; or there is none that serves.
 * One whose connection is being made anew is waited for: it must not be made at the new one. */
static bool may_take_over(const struct engine_swap *sw)
{
    const struct engine_guard *g = sw->guard;

    return sw->watch.state == ENGINE_WATCH_SEES &&
           (g->child->pid == 0 || !g->watch.greeted || g->watch.state == ENGINE_WATCH_SEES);
}

/* It doesn't know the word, or can't be told any more. */
static void drain_other(struct engine_swap *sw, int64_t now_ms)
{
    sw->due_ms = now_ms + DRAIN_MS;
    child_ask_to_stop(&sw->other);
}

/* sw->other is the engine that served, sw->watch the one on it. */
static void retire(struct engine_swap *sw, int64_t now_ms)
{
    sw->state = sw->other.pid != 0 ? ENGINE_SWAP_RETIRING : ENGINE_SWAP_DONE;
    sw->due_ms = sw->other.pid != 0 ? now_ms + RETIRE_MS : INT64_MAX;
    if (sw->other.pid == 0)
        return;
    if (!sw->watch.greeted)
        kill_other(sw, "was loading while its successor took over");
    else if (sw->watch.welcome.version >= WIRE_VERSION_HANDOVER)
        engine_watch_hand_over(&sw->watch);
    else
        drain_other(sw, now_ms);
}

/* Connections to the old socket live on: a path is only for connecting. */
static void take_over(struct engine_swap *sw, int64_t now_ms, char news[ENGINE_SWAP_NEWS_BYTES])
{
    struct engine_guard *g = sw->guard;

    sw->ready_ms = now_ms - sw->other.started_ms;
    engine_guard_make_way(g);
    if (rename(sw->socket, g->watch.socket_path) == -1) {
        kill_other(sw, "could not take its socket's place");
        snprintf(news, ENGINE_SWAP_NEWS_BYTES, "%.200s can't be replaced: %s", g->watch.socket_path,
                 strerror(errno));
        return;
    }
    child_exchange(g->child, &sw->other);
    engine_guard_succeed(g, &sw->watch, now_ms);
    retire(sw, now_ms);
    snprintf(news, ENGINE_SWAP_NEWS_BYTES,
             "its successor (pid %d) serves, ready after %" PRId64 " ms", (int)g->child->pid,
             sw->ready_ms);
}

/* ---- turns ---- */

/* One that left for being idle, as it may have been told just before, leaves its place to its
 * successor all the same. */
static bool is_needed(const struct engine_guard *g)
{
    return g->child->wanted || g->idle.is_away;
}

static bool turn_loading(struct engine_swap *sw, int64_t now_ms, char news[ENGINE_SWAP_NEWS_BYTES])
{
    struct reason why = {0};

    if (sw->watch.state == ENGINE_WATCH_OFF)
        return false; /* killed, and soon reaped */
    if (!is_needed(sw->guard)) {
        kill_other(sw, "is not needed: the model is being unloaded");
        return false;
    }
    hold_restart(sw);
    engine_guard_keep_awake(sw->guard, now_ms);
    if (engine_watch_turn(&sw->watch, now_ms, &why))
        kill_other(sw, why.text);
    else if (now_ms >= sw->due_ms)
        kill_other(sw, "was not ready in time");
    if (!may_take_over(sw))
        return false;
    take_over(sw, now_ms, news);
    return true;
}

/* Its watch connects no more: at the path there is another one. */
static void turn_retiring(struct engine_swap *sw, int64_t now_ms)
{
    bool is_untold = sw->watch.out.len > 0; /* HANDOVER is still here */
    struct reason why = {0};

    if (engine_watch_turn(&sw->watch, now_ms, &why))
        kill_other(sw, why.text);
    else if (now_ms >= sw->due_ms)
        kill_other(sw, "did not end its requests in time");
    if (sw->watch.state != ENGINE_WATCH_AWAY)
        return;
    engine_watch_stop(&sw->watch);
    if (is_untold)
        drain_other(sw, now_ms);
}

bool engine_swap_turn(struct engine_swap *sw, int64_t now_ms, char news[ENGINE_SWAP_NEWS_BYTES])
{
    if (sw->state == ENGINE_SWAP_LOADING)
        return turn_loading(sw, now_ms, news);
    if (sw->state == ENGINE_SWAP_RETIRING)
        turn_retiring(sw, now_ms);
    return false;
}

struct pollfd engine_swap_pollfd(const struct engine_swap *sw)
{
    return engine_watch_pollfd(&sw->watch);
}

int64_t engine_swap_due_ms(const struct engine_swap *sw, int64_t now_ms)
{
    if (!engine_swap_is_under_way(sw))
        return INT64_MAX;
    return int64_min(sw->due_ms, engine_watch_due_ms(&sw->watch, now_ms));
}

void engine_swap_on_end(struct engine_swap *sw, int64_t now_ms, char news[ENGINE_SWAP_NEWS_BYTES])
{
    bool has_failed = sw->state == ENGINE_SWAP_LOADING;
    bool went_well = !has_failed && strcmp(sw->other.cause, "exit 0") == 0;

    engine_watch_stop(&sw->watch);
    sw->due_ms = INT64_MAX;
    sw->state = has_failed ? ENGINE_SWAP_FAILED : ENGINE_SWAP_DONE;
    snprintf(sw->reason, sizeof sw->reason, "%s", went_well ? "" : sw->other.last);
    if (has_failed) {
        unlink(sw->socket);
        release_restart(sw, now_ms);
        snprintf(news, ENGINE_SWAP_NEWS_BYTES, "its successor failed (%.200s): nothing changes",
                 sw->reason);
    } else {
        snprintf(news, ENGINE_SWAP_NEWS_BYTES, "the one before it has left%s%.200s",
                 went_well ? "" : ": ", sw->reason);
    }
}
