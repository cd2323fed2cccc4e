#include "app/status_report.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/supervise/engine_watch.h"
#include "app/supervise/files.h"
#include "app/supervise/process.h"
#include "app/up/probe.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/size.h"

/* A greeting is answered between two steps. */
#define PATIENCE_MS  3000
#define READYZ_BYTES 4096
#define STATE_BYTES  1024
#define READYZ_DEPTH 4
#define LOOK_AT_MOST 250

const char *engine_presence_name(enum engine_presence p)
{
    static const char *const names[] = {"absent", "down", "mute", "ready"};

    return names[p];
}

/* ---- the engine ---- */

static bool is_answered(const struct engine_watch *w)
{
    return w->has_stats || w->refused[0] != '\0' || w->state == ENGINE_WATCH_AWAY;
}

static void watch(struct engine_watch *w)
{
    int64_t now_ms = clock_mono_ms(), end_ms = now_ms + PATIENCE_MS;

    engine_watch_start(w, now_ms);
    (void)engine_watch_turn(w, now_ms, NULL);
    while (!is_answered(w) && now_ms < end_ms) {
        struct pollfd fd = engine_watch_pollfd(w);

        (void)poll(&fd, 1, (int)int64_min(end_ms - now_ms, LOOK_AT_MOST));
        now_ms = clock_mono_ms();
        (void)engine_watch_turn(w, now_ms, NULL);
    }
}

static void ask_engine(struct status_report *r, const char *socket_path)
{
    struct engine_watch w;

    engine_watch_init(&w, socket_path, 0);
    watch(&w);
    if (w.has_stats) {
        r->engine = ENGINE_READY;
        r->welcome = w.welcome;
        r->stats = w.stats;
    } else if (w.refused[0] != '\0') {
        r->engine = ENGINE_DOWN;
        snprintf(r->reason, sizeof r->reason, "%s", w.refused);
    } else {
        r->engine = w.state == ENGINE_WATCH_AWAY ? ENGINE_ABSENT : ENGINE_MUTE;
    }
    engine_watch_dispose(&w);
}

/* ---- its supervisor ---- */

/* "NAME VALUE" lines, written by engine_guard.c; whatever else is in it is not looked at. */
static void take_line(struct status_report *r, char *line)
{
    for (char *c = line; *c != '\0'; c++)
        if (*c < 0x20 || *c > 0x7E)
            *c = '?';
    if (strncmp(line, "state ", 6) == 0)
        snprintf(r->state, sizeof r->state, "%.15s", line + 6);
    else if (strncmp(line, "deaths ", 7) == 0)
        r->deaths = (unsigned)strtoul(line + 7, NULL, 10);
    else if (strncmp(line, "reason ", 7) == 0) /* longer than a frame has room for */
        snprintf(r->reason, sizeof r->reason, "%s", line + 7);
}

/* The one that wrote it lives still: pid and start time. */
static bool is_of_the_living(const char *text)
{
    uint64_t ticks = 0;
    int pid = 0;

    return sscanf(text, "supervisor %d %" SCNu64, &pid, &ticks) == 2 && ticks != 0 &&
           process_started_ticks(pid) == ticks;
}

static void ask_supervisor(struct status_report *r, const char *socket_path)
{
    char path[256], text[STATE_BYTES], *next = NULL;

    snprintf(path, sizeof path, "%.200s.state", socket_path);
    if (file_read(path, text, sizeof text) != ST_OK || !is_of_the_living(text))
        return;
    r->is_supervised = true;
    for (char *line = strtok_r(text, "\n", &next); line != NULL; line = strtok_r(NULL, "\n", &next))
        take_line(r, line);
}

/* ---- the gateway ---- */

static void ask_gateway(struct status_report *r, const struct config *c)
{
    char answer[READYZ_BYTES];
    const char *body;

    r->http = probe_http(c->listen, (int)c->port, "/readyz", answer, sizeof answer);
    body = r->http != -1 ? strstr(answer, "\r\n\r\n") : NULL;
    if (body != NULL &&
        json_parse(body + 4, strlen(body + 4), READYZ_DEPTH, &r->readyz, NULL) != ST_OK)
        r->readyz = NULL;
}

void status_report_ask(struct status_report *r, const struct config *c)
{
    *r = (struct status_report){.http = -1};
    ask_engine(r, c->engine_socket);
    ask_supervisor(r, c->engine_socket);
    ask_gateway(r, c);
}

void status_report_dispose(struct status_report *r)
{
    json_decref(r->readyz);
    r->readyz = NULL;
}

bool status_report_is_ready(const struct status_report *r)
{
    return r->engine == ENGINE_READY && r->http == 200;
}
