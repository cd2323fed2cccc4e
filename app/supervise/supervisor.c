#include "app/supervise/supervisor.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/supervise/supervisor_signals.h"
#include "base/clock.h"
#include "base/size.h"

/* Between two looks at whether something is ready. */
#define READY_POLL_MS 20
/* For what a killed child left behind (a database's own children end by themselves). */
#define LEFTOVER_MS 5000
#define IDLE_MS     60000

enum status supervisor_init(struct supervisor *s, struct reason *why)
{
    enum status st;

    *s =
        (struct supervisor){.began_ms = clock_mono_ms(), .on_terminal = isatty(STDOUT_FILENO) == 1};
    st = supervisor_open_signals(s, why);
    if (st != ST_OK)
        return st;
    /* Grandchildren whose parent died come to us, so that the stop can wait for them too. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return ST_OK;
}

void supervisor_say(const struct supervisor *s, const char *fmt, ...)
{
    int64_t ms = clock_mono_ms() - s->began_ms;
    va_list args;

    printf("[%3" PRId64 ".%02" PRId64 " s] ", ms / 1000, ms % 1000 / 10);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void supervisor_add(struct supervisor *s, struct child *c)
{
    assert(s->n < SUPERVISOR_CHILDREN_MAX);
    s->children[s->n++] = c;
}

void supervisor_add_engine(struct supervisor *s, struct engine_guard *g)
{
    assert(s->n_guards < SUPERVISOR_ENGINES_MAX);
    supervisor_add(s, g->child);
    s->guards[s->n_guards++] = g;
}

void supervisor_add_swap(struct supervisor *s, struct engine_swap *sw)
{
    assert(s->n_swaps < SUPERVISOR_ENGINES_MAX);
    supervisor_add(s, &sw->other);
    s->swaps[s->n_swaps++] = sw;
}

static struct engine_swap *swap_of(struct supervisor *s, const struct child *c)
{
    for (size_t i = 0; i < s->n_swaps; i++)
        if (&s->swaps[i]->other == c)
            return s->swaps[i];
    return NULL;
}

static void say_news(const struct supervisor *s, const struct engine_swap *sw, const char *news)
{
    supervisor_say(s, "%s: %s", sw->guard->child->spec.name, news);
}

static struct engine_guard *guard_of(struct supervisor *s, const struct child *c)
{
    for (size_t i = 0; i < s->n_guards; i++)
        if (s->guards[i]->child == c)
            return s->guards[i];
    return NULL;
}

enum status supervisor_start(struct supervisor *s, struct child *c, struct reason *why)
{
    struct engine_guard *g = guard_of(s, c);
    int64_t now_ms = clock_mono_ms();
    struct reason own = {0};
    enum status st;

    if (why == NULL)
        why = &own;
    if (g != NULL)
        engine_guard_make_way(g);
    st = child_start(c, now_ms, why);
    if (g != NULL && st == ST_OK)
        engine_guard_on_start(g, now_ms);
    else if (g != NULL)
        engine_guard_on_end(g, why->text);
    return st;
}

/* ---- one turn ---- */

static struct child *find(struct supervisor *s, pid_t pid)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->children[i]->pid == pid)
            return s->children[i];
    return NULL;
}

static void say_end(const struct supervisor *s, const struct child *c, int wait_status,
                    int64_t delay_ms)
{
    if (c->given_up)
        supervisor_say(s,
                       "%s ended (%s): %u crashes in a row, not started again before a SIGHUP or "
                       "sluice model load",
                       c->spec.name, c->last, c->backoff.deaths);
    else if (delay_ms >= 0 && c->rests && c->with->pid == 0)
        supervisor_say(s, "%s ended; starts again with the %s", c->spec.name, c->with->spec.name);
    else if (delay_ms >= 0)
        supervisor_say(s, "%s ended (%s); starts again in %" PRId64 " ms", c->spec.name, c->last,
                       delay_ms);
    else if (wait_status != 0)
        supervisor_say(s, "%s did not stop well (%s)", c->spec.name, c->last);
}

static void on_end(struct supervisor *s, struct child *c, int wait_status, int64_t now_ms)
{
    struct engine_guard *g = guard_of(s, c);
    struct engine_swap *sw = swap_of(s, c);
    bool is_idle = g != NULL && engine_guard_on_exit(g, wait_status);
    int64_t delay_ms = child_on_exit(c, wait_status, now_ms);
    char news[ENGINE_SWAP_NEWS_BYTES];

    if (sw != NULL) {
        engine_swap_on_end(sw, now_ms, news);
        say_news(s, sw, news);
        return;
    }
    if (is_idle)
        supervisor_say(s, "%s had nothing to do and is unloaded; the next request loads it",
                       c->spec.name);
    else
        say_end(s, c, wait_status, delay_ms);
    if (g != NULL)
        engine_guard_on_end(g, NULL);
}

static void reap(struct supervisor *s, int64_t now_ms)
{
    int wait_status = 0;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        struct child *c = find(s, pid);

        if (c != NULL)
            on_end(s, c, wait_status, now_ms);
    }
}

static void restart(struct supervisor *s, struct child *c, int64_t now_ms)
{
    struct reason why = {0};

    if (supervisor_start(s, c, &why) == ST_OK) {
        supervisor_say(s, "%s started again (pid %d)", c->spec.name, (int)c->pid);
        return;
    }
    c->due_ms = now_ms + backoff_next(&c->backoff, 0);
    supervisor_say(s, "%s", why.text);
}

static void restart_due(struct supervisor *s, int64_t now_ms)
{
    for (size_t i = 0; i < s->n; i++)
        if (child_due_ms(s->children[i]) <= now_ms)
            restart(s, s->children[i], now_ms);
}

static int64_t next_due_ms(const struct supervisor *s, int64_t now_ms)
{
    int64_t due_ms = s->control != NULL ? control_due_ms(s->control) : INT64_MAX;

    for (size_t i = 0; i < s->n_guards; i++)
        due_ms = int64_min(due_ms, engine_guard_due_ms(s->guards[i], now_ms));
    for (size_t i = 0; i < s->n_swaps; i++)
        due_ms = int64_min(due_ms, engine_swap_due_ms(s->swaps[i], now_ms));
    for (size_t i = 0; i < s->n; i++)
        due_ms = int64_min(due_ms, child_due_ms(s->children[i]));
    return due_ms;
}

static void wait_for_news(struct supervisor *s, int64_t wait_ms)
{
    struct pollfd fds[1 + SUPERVISOR_CHILDREN_MAX +
                      SUPERVISOR_ENGINES_MAX * (ENGINE_GUARD_FDS + 1) + CONTROL_FDS];
    nfds_t n = 0;

    fds[n++] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    for (size_t i = 0; i < s->n; i++)
        if (s->children[i]->pid != 0 && s->children[i]->spec.log[0] == '\0')
            fds[n++] = (struct pollfd){.fd = s->children[i]->output.fd, .events = POLLIN};
    for (size_t i = 0; i < s->n_guards; i++)
        n += engine_guard_pollfds(s->guards[i], fds + n);
    for (size_t i = 0; i < s->n_swaps; i++)
        fds[n++] = engine_swap_pollfd(s->swaps[i]);
    if (s->control != NULL)
        n += control_pollfds(s->control, fds + n);
    /* Nothing is lost when it fails: every turn looks at all. */
    (void)poll(fds, n, (int)wait_ms);
}

static void turn_engines(struct supervisor *s, int64_t now_ms)
{
    char news[ENGINE_SWAP_NEWS_BYTES];

    for (size_t i = 0; i < s->n_guards; i++)
        if (engine_guard_turn(s->guards[i], now_ms))
            supervisor_say(s, "the %s %s: killed", s->guards[i]->child->spec.name,
                           s->guards[i]->child->killed_for);
    for (size_t i = 0; i < s->n_swaps; i++)
        if (engine_swap_turn(s->swaps[i], now_ms, news))
            say_news(s, s->swaps[i], news);
}

/* Waits up to max_wait_ms for a signal, a descriptor or the next start that is due, and does what
 * there is. */
static void turn(struct supervisor *s, int64_t max_wait_ms)
{
    int64_t now_ms = clock_mono_ms();
    int64_t until_due_ms = next_due_ms(s, now_ms);

    if (until_due_ms != INT64_MAX)
        until_due_ms = int64_max(until_due_ms - now_ms, 0);
    wait_for_news(s, int64_min(until_due_ms, max_wait_ms));
    now_ms = clock_mono_ms();
    supervisor_take_signals(s, now_ms);
    for (size_t i = 0; i < s->n; i++)
        if (s->children[i]->pid != 0 && s->children[i]->spec.log[0] == '\0')
            child_log_drain(&s->children[i]->output);
    reap(s, now_ms);
    turn_engines(s, now_ms);
    if (s->control != NULL)
        control_turn(s->control, now_ms);
    restart_due(s, now_ms);
}

/* ---- start and run ---- */

static bool keeps_dying(const struct child *c)
{
    return c->pid == 0 && c->backoff.deaths >= CHILD_DEATHS_MAX;
}

/* NULL: everything that the start needs may still come up. */
static const struct child *hopeless(const struct supervisor *s)
{
    const struct child *lost = NULL;
    bool another = false;

    for (size_t i = 0; i < s->n; i++) {
        const struct child *c = s->children[i];

        if (!keeps_dying(c))
            another |= c->is_optional;
        else if (!c->is_optional)
            return c;
        else
            lost = c;
    }
    return another ? NULL : lost;
}

enum status supervisor_wait(struct supervisor *s, bool (*is_ready)(void *arg), void *arg,
                            int64_t timeout_ms, struct reason *why)
{
    int64_t deadline_ms = clock_mono_ms() + timeout_ms;

    for (;;) {
        const struct child *lost = hopeless(s);

        if (s->stops_asked > 0)
            return ST_CANCELLED;
        if (lost != NULL)
            return fail(why, ST_UNAVAILABLE, "%s does not stay up: %s", lost->spec.name,
                        lost->last);
        if (is_ready(arg))
            return ST_OK;
        if (clock_mono_ms() >= deadline_ms)
            return fail(why, ST_TIMEOUT, "not ready after %" PRId64 " s", timeout_ms / 1000);
        turn(s, READY_POLL_MS);
    }
}

void supervisor_run(struct supervisor *s)
{
    while (s->stops_asked == 0)
        turn(s, IDLE_MS);
}

/* ---- stop ---- */

static void stop_one(struct supervisor *s, struct child *c, unsigned signals_before)
{
    int64_t deadline_ms = clock_mono_ms() + c->stop_ms;
    struct engine_guard *guard = guard_of(s, c);
    bool killed = false;

    child_ask_to_stop(c);
    while (c->pid != 0) {
        bool hurry = s->stops_asked > signals_before;

        if (!killed && (hurry || clock_mono_ms() >= deadline_ms)) {
            supervisor_say(s, "%s does not stop in time: killed", c->spec.name);
            child_kill(c);
            killed = true;
        }
        turn(s, READY_POLL_MS);
    }
    if (guard != NULL)
        engine_guard_make_way(guard); /* nobody wakes it any more */
}

static void wait_for_leftovers(struct supervisor *s)
{
    int64_t deadline_ms = clock_mono_ms() + LEFTOVER_MS;

    while (waitpid(-1, NULL, WNOHANG) != -1 && clock_mono_ms() < deadline_ms)
        turn(s, READY_POLL_MS);
}

void supervisor_stop(struct supervisor *s)
{
    unsigned signals_before = s->stops_asked;

    for (size_t i = 0; i < s->n; i++)
        s->children[i]->wanted = false;
    for (size_t i = s->n; i-- > 0;)
        stop_one(s, s->children[i], signals_before);
    wait_for_leftovers(s);
}
