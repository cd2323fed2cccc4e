#include "app/cmd_status.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/config.h"
#include "app/status_report.h"
#include "base/log.h"

#define EXIT_NOT_READY 1
#define EXIT_USAGE     2

static const char usage_text[] =
    "usage: sluice status --config FILE [--json]\n"
    "\n"
    "Says of each model whether its engine works, and whether the gateway is ready. Exit code: 0 "
    "at\n"
    "least one engine, every required one and the gateway are, 1 not.\n";

/* ---- for people ---- */

static void print_work(const struct wire_stats *s)
{
    printf("         %u running, %u waiting, %u of %u pages, %" PRIu64 " steps", s->running,
           s->waiting, s->pages_used, s->pages_total, s->steps);
    if (s->last_step_age_ms >= 0)
        printf(", the last %" PRId64 " ms ago", s->last_step_age_ms);
    putchar('\n');
}

static void print_absence(const struct engine_report *r)
{
    const char *socket = r->model->socket;

    if (access(socket, W_OK) == -1 && errno == EACCES)
        printf("engine   %s: no right to ask there; run as its user\n", socket);
    else if (r->is_supervised)
        printf("engine   loading: its supervisor says it is %s\n", r->state);
    else
        printf("engine   nothing listens at %s: start sluice serve --with-engine, sluice engine "
               "or sluice up\n",
               socket);
}

static void print_deaths(const struct engine_report *r)
{
    if (!r->is_supervised || r->deaths == 0)
        return;
    printf("         %u death%s", r->deaths, r->deaths == 1 ? "" : "s");
    if (r->presence != ENGINE_DOWN) /* there it was said already */
        printf("; the last: %s", r->reason);
    putchar('\n');
    for (unsigned i = 0; i < r->log.n; i++)
        printf("%s%s\n", i == 0 ? "         its log ended: " : "                        ",
               r->log.text[i]);
}

/* What was given up in a crash loop stays away until somebody says so. */
static void print_remedy(const struct engine_report *r)
{
    if (r->is_supervised && strcmp(r->state, "stopped") == 0)
        printf("         to try again: sluice model load --config FILE %s, or SIGHUP to the "
               "supervisor\n",
               r->model->id);
}

static void print_engine(const struct engine_report *r)
{
    const struct wire_welcome *w = &r->welcome;

    switch (r->presence) {
    case ENGINE_READY:
        printf("engine   ready: pid %u, %s, build %s\n", w->pid, w->device, w->build);
        printf("         revision %.12s, context %u\n", w->revision, w->max_context);
        print_work(&r->stats);
        break;
    case ENGINE_DOWN:
        printf("engine   %s: %s\n", r->is_asleep ? "idle" : "down", r->reason);
        break;
    case ENGINE_MUTE:
        printf("engine   does not answer at %s: it is in a long step, or frozen\n",
               r->model->socket);
        break;
    case ENGINE_ABSENT:
        print_absence(r);
        break;
    }
    print_deaths(r);
    print_remedy(r);
}

static void print_engines(const struct status_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        printf("model    %s%s\n", r->engines[i].model->id,
               strcmp(r->engines[i].model->required, "on") == 0 ? ", required" : "");
        print_engine(&r->engines[i]);
    }
}

/* The names of what /readyz calls false of `which`, and why; nothing where all is there. */
static void print_missing(const json_t *readyz, const char *which)
{
    const char *reason = json_string_value(json_object_get(readyz, "reason")), *name,
               *separator = ", missing: ";
    json_t *value;
    bool any = false;

    json_object_foreach(json_object_get(readyz, which), name, value)
    {
        if (!json_is_false(value))
            continue;
        printf("%s%s", separator, name);
        separator = ", ";
        any = true;
    }
    if (any && reason != NULL)
        printf("; %s", reason);
}

static void print_gateway(const struct status_report *r, const struct config *c)
{
    if (r->http == 200) {
        printf("gateway  ready on %s port %" PRId64, c->listen, c->port);
        print_missing(r->readyz, "models");
        putchar('\n');
    } else if (r->readyz != NULL) {
        printf("gateway  not ready on %s port %" PRId64, c->listen, c->port);
        print_missing(r->readyz, "parts");
        putchar('\n');
    } else if (r->http != -1) {
        printf("gateway  %s port %" PRId64 " answers with %d: is it ours?\n", c->listen, c->port,
               r->http);
    } else {
        printf("gateway  no answer on %s port %" PRId64 ": start sluice serve or sluice up, if it "
               "isn't one that is frozen\n",
               c->listen, c->port);
    }
}

/* ---- for programs ---- */

static json_t *log_json(const struct last_lines *l)
{
    json_t *all = json_array();

    for (unsigned i = 0; i < l->n; i++)
        json_array_append_new(all, json_string(l->text[i]));
    return all;
}

static json_t *engine_json(const struct engine_report *r)
{
    const struct wire_welcome *w = &r->welcome;
    const struct wire_stats *s = &r->stats;
    json_t *o = json_pack("{s:s, s:b, s:s}", "model", r->model->id, "required",
                          strcmp(r->model->required, "on") == 0, "state",
                          engine_presence_name(r->presence));

    if (r->presence == ENGINE_READY)
        json_object_update_new(
            o,
            json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I, s:I}", "pid", (int)w->pid,
                      "device", w->device, "build", w->build, "revision", w->revision, "context",
                      (int)w->max_context, "running", (int)s->running, "waiting", (int)s->waiting,
                      "pages_used", (int)s->pages_used, "pages_total", (int)s->pages_total, "steps",
                      (json_int_t)s->steps, "last_step_age_ms", (json_int_t)s->last_step_age_ms));
    if (r->is_supervised)
        json_object_update_new(o, json_pack("{s:s, s:i, s:o}", "supervisor", r->state, "deaths",
                                            (int)r->deaths, "log", log_json(&r->log)));
    if (r->reason[0] != '\0')
        json_object_set_new(o, "reason", json_string(r->reason));
    return o;
}

static json_t *engines_json(const struct status_report *r)
{
    json_t *all = json_array();

    for (size_t i = 0; i < r->n; i++)
        json_array_append_new(all, engine_json(&r->engines[i]));
    return all;
}

static json_t *gateway_json(const struct status_report *r)
{
    const char *state = r->http == 200 ? "ready" : r->http != -1 ? "not ready" : "absent";
    json_t *o = json_pack("{s:s}", "state", state);

    if (r->readyz != NULL)
        json_object_set(o, "readyz", r->readyz);
    return o;
}

static void print_json(const struct status_report *r)
{
    json_t *o = json_pack("{s:b, s:o, s:o}", "ready", (int)status_report_is_ready(r), "engines",
                          engines_json(r), "gateway", gateway_json(r));

    if (o != NULL)
        json_dumpf(o, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(o);
}

/* ---- the command ---- */

static bool take_options(int argc, char **argv, const char **config, bool *json)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            *json = true;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            *config = argv[++i];
        else
            return false;
    }
    return *config != NULL;
}

static int report(const struct config *c, bool json)
{
    struct status_report r;
    enum status st = status_report_ask(&r, c);
    int rc = st == ST_OK && status_report_is_ready(&r) ? 0 : EXIT_NOT_READY;

    if (st != ST_OK) {
        fprintf(stderr, "sluice status: %s\n", status_text(st));
    } else if (json) {
        print_json(&r);
    } else {
        print_engines(&r);
        print_gateway(&r, c);
    }
    status_report_dispose(&r);
    return rc;
}

int cmd_status(int argc, char **argv)
{
    const char *path = NULL;
    struct config *c = NULL;
    struct reason why = {0};
    bool json = false;
    int rc;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage_text, stdout);
        return 0;
    }
    if (!take_options(argc, argv, &path, &json)) {
        fputs(usage_text, stderr);
        return EXIT_USAGE;
    }
    log_init("status", LOG_ERROR);
    if (config_load_engine(path, &c, &why) != ST_OK) {
        fprintf(stderr, "sluice status: %s\n", why.text);
        return EXIT_NOT_READY;
    }
    rc = report(c, json);
    config_free(c);
    return rc;
}
