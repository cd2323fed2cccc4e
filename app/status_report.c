#include "app/status_report.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/supervise/engine_watch.h"
#include "app/supervise/state_file.h"
#include "app/up/probe.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/size.h"

/* A greeting is answered between two steps. */
#define PATIENCE_MS  3000
#define READYZ_BYTES 4096
#define READYZ_DEPTH 4
#define LOOK_AT_MOST 250

const char *engine_presence_name(enum engine_presence p)
{
    static const char *const names[] = {"absent", "down", "mute", "ready"};

    return names[p];
}

/* ---- the engines ---- */

static bool is_answered(const struct engine_watch *w)
{
    return w->has_stats || w->refused[0] != '\0' || w->state == ENGINE_WATCH_AWAY;
}

static bool all_answered(const struct engine_watch *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_answered(&w[i]))
            return false;
    return true;
}

static void turn_all(struct engine_watch *w, size_t n, int64_t now_ms)
{
    for (size_t i = 0; i < n; i++)
        if (!is_answered(&w[i]))
            (void)engine_watch_turn(&w[i], now_ms, NULL);
}

/* All at one time: mute ones cost their patience once. */
static void watch(struct engine_watch *w, struct pollfd *fds, size_t n)
{
    int64_t now_ms = clock_mono_ms(), end_ms = now_ms + PATIENCE_MS;

    for (size_t i = 0; i < n; i++) {
        engine_watch_start(&w[i], now_ms);
        (void)engine_watch_turn(&w[i], now_ms, NULL);
    }
    while (!all_answered(w, n) && now_ms < end_ms) {
        for (size_t i = 0; i < n; i++) {
            fds[i] = engine_watch_pollfd(&w[i]);
            if (is_answered(&w[i]))
                fds[i].fd = -1;
        }
        (void)poll(fds, n, (int)int64_min(end_ms - now_ms, LOOK_AT_MOST));
        now_ms = clock_mono_ms();
        turn_all(w, n, now_ms);
    }
}

static void take_answer(struct engine_report *r, const struct engine_watch *w)
{
    if (w->has_stats) {
        r->presence = ENGINE_READY;
        r->welcome = w->welcome;
        r->stats = w->stats;
    } else if (w->refused[0] != '\0') {
        r->presence = ENGINE_DOWN;
        r->is_asleep = w->refused_status == ST_ASLEEP;
        snprintf(r->reason, sizeof r->reason, "%s", w->refused);
    } else {
        r->presence = w->state == ENGINE_WATCH_AWAY ? ENGINE_ABSENT : ENGINE_MUTE;
    }
}

static enum status ask_engines(struct status_report *r)
{
    struct engine_watch *w = calloc(r->n, sizeof *w);
    struct pollfd *fds = calloc(r->n, sizeof *fds);
    enum status st = w != NULL && fds != NULL ? ST_OK : ST_NO_MEMORY;

    for (size_t i = 0; st == ST_OK && i < r->n; i++)
        engine_watch_init(&w[i], r->engines[i].model->socket, 0);
    if (st == ST_OK)
        watch(w, fds, r->n);
    for (size_t i = 0; st == ST_OK && i < r->n; i++) {
        take_answer(&r->engines[i], &w[i]);
        engine_watch_dispose(&w[i]);
    }
    free(w);
    free(fds);
    return st;
}

/* ---- its supervisor ---- */

static void ask_supervisor(struct engine_report *r)
{
    struct state_file s;

    if (!state_file_read(r->model->socket, &s))
        return;
    r->is_supervised = true;
    r->deaths = s.deaths;
    memcpy(r->state, s.state, sizeof r->state);
    r->log = s.log;
    if (s.reason[0] != '\0') /* longer than a frame has room for */
        memcpy(r->reason, s.reason, sizeof r->reason);
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

enum status status_report_ask(struct status_report *r, const struct config *c)
{
    enum status st;

    *r = (struct status_report){.http = -1};
    r->engines = calloc(c->n_models, sizeof r->engines[0]);
    if (r->engines == NULL)
        return ST_NO_MEMORY;
    for (r->n = 0; r->n < c->n_models; r->n++)
        r->engines[r->n].model = &c->models[r->n];
    st = ask_engines(r);
    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < r->n; i++)
        ask_supervisor(&r->engines[i]);
    ask_gateway(r, c);
    return ST_OK;
}

void status_report_dispose(struct status_report *r)
{
    json_decref(r->readyz);
    free(r->engines);
    *r = (struct status_report){.http = -1};
}

bool status_report_is_ready(const struct status_report *r)
{
    bool any = false;

    for (size_t i = 0; i < r->n; i++) {
        if (r->engines[i].presence == ENGINE_READY || r->engines[i].is_asleep)
            any = true;
        else if (strcmp(r->engines[i].model->required, "on") == 0)
            return false;
    }
    return any && r->http == 200;
}
