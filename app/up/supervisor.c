#include "app/up/supervisor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/size.h"

/* Between two looks at whether something is ready. */
#define READY_POLL_MS 20
/* Deaths in a row at which a start is given up: the fifth comes after 1.5 s of back-off. */
#define DEATHS_MAX 5
/* For what a killed child left behind (a database's own children end by themselves). */
#define LEFTOVER_MS    5000
#define SECOND_WISH_MS 1000
#define IDLE_MS        60000

void supervisor_init(struct supervisor *s)
{
    static const int handled[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};

    s->n = 0;
    s->stops_asked = 0;
    s->began_ms = clock_mono_ms();
    sigemptyset(&s->signals);
    for (size_t i = 0; i < COUNT_OF(handled); i++)
        sigaddset(&s->signals, handled[i]);
    sigprocmask(SIG_BLOCK, &s->signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* Grandchildren whose parent died come to us, so that the stop can wait for them too. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
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

enum status supervisor_start(struct child *c, struct reason *why)
{
    return child_start(c, clock_mono_ms(), why);
}

/* ---- one turn ---- */

static struct child *find(struct supervisor *s, pid_t pid)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->children[i]->pid == pid)
            return s->children[i];
    return NULL;
}

static void reap(struct supervisor *s, int64_t now_ms)
{
    int wait_status = 0;
    pid_t pid;

    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        struct child *c = find(s, pid);
        int64_t delay_ms;

        if (c == NULL)
            continue;
        delay_ms = child_on_exit(c, wait_status, now_ms);
        if (delay_ms >= 0)
            supervisor_say(s, "%s ended (%s); starts again in %" PRId64 " ms", c->spec.name,
                           c->last, delay_ms);
        else if (wait_status != 0)
            supervisor_say(s, "%s did not stop well (%s)", c->spec.name, c->last);
    }
}

static void restart(struct supervisor *s, struct child *c, int64_t now_ms)
{
    struct reason why = {0};

    if (child_start(c, now_ms, &why) == ST_OK) {
        supervisor_say(s, "%s started again (pid %d)", c->spec.name, (int)c->pid);
        return;
    }
    c->due_ms = now_ms + backoff_next(&c->backoff, 0);
    supervisor_say(s, "%s", why.text);
}

static void restart_due(struct supervisor *s, int64_t now_ms)
{
    for (size_t i = 0; i < s->n; i++) {
        struct child *c = s->children[i];

        if (c->wanted && c->pid == 0 && c->due_ms <= now_ms)
            restart(s, c, now_ms);
    }
}

static int64_t until_next_start(const struct supervisor *s, int64_t now_ms, int64_t at_most_ms)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->children[i]->wanted && s->children[i]->pid == 0)
            at_most_ms = int64_min(at_most_ms, int64_max(s->children[i]->due_ms - now_ms, 0));
    return at_most_ms;
}

/* One Ctrl-C can arrive more than once, from the terminal and from a wrapper that passes it on:
 * only what comes a second later is a second wish. */
static void note_stop(struct supervisor *s, int64_t now_ms)
{
    if (s->stops_asked > 0 && now_ms - s->last_stop_ms < SECOND_WISH_MS)
        return;
    s->stops_asked++;
    s->last_stop_ms = now_ms;
}

/* Waits up to max_wait_ms for a signal or the next start that is due, and does what there is. */
static void turn(struct supervisor *s, int64_t max_wait_ms)
{
    int64_t wait_ms = until_next_start(s, clock_mono_ms(), max_wait_ms), now_ms;
    struct timespec wait = {.tv_sec = wait_ms / 1000, .tv_nsec = wait_ms % 1000 * 1000000L};
    int sig = sigtimedwait(&s->signals, NULL, &wait);

    now_ms = clock_mono_ms();
    if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP)
        note_stop(s, now_ms);
    reap(s, now_ms);
    restart_due(s, now_ms);
}

/* ---- start and run ---- */

static const struct child *hopeless(const struct supervisor *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->children[i]->pid == 0 && s->children[i]->backoff.deaths >= DEATHS_MAX)
            return s->children[i];
    return NULL;
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
