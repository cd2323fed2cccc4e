#include "app/supervise/fleet.h"

#include <ctype.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/config_models.h"
#include "base/json.h"
#include "base/utf8.h"

/* The gateway has drained before it: nobody waits for what still runs. */
#define ENGINE_STOP_MS 5000

_Static_assert(SUPERVISOR_ENGINES_MAX >= CONFIG_MODELS_MAX, "every model has its engine");

/* ---- describing ---- */

static enum status describe(struct fleet *f, size_t i, const struct config *c,
                            const struct child *gateway)
{
    struct fleet_engine *e = &f->engines[i];
    const struct config_model *m = &c->models[i];
    bool is_one = c->n_models == 1;

    e->id = strdup(m->id);
    e->socket = strdup(m->socket);
    e->idle_ms = m->idle_unload_s * 1000;
    if (e->id == NULL || e->socket == NULL)
        return ST_NO_MEMORY;
    snprintf(e->name, sizeof e->name, "engine%s%s", is_one ? "" : " ", is_one ? "" : e->id);
    memcpy(e->argv,
           (const char *const[]){f->self, "engine", "--config", f->config,
                                 is_one ? NULL : "--model-id", e->id, NULL},
           7 * sizeof e->argv[0]);
    e->child = (struct child){
        .spec = {.name = e->name, .argv = e->argv, .cwd = "/", .death_signal = SIGTERM},
        .stop_signal = SIGTERM,
        .stop_ms = ENGINE_STOP_MS,
        .is_optional = !is_one && strcmp(m->required, "on") != 0,
        .with = gateway};
    snprintf(e->child.pid_file, sizeof e->child.pid_file, "%.500s.pid", e->socket);
    engine_swap_init(&e->swap, &e->guard, &e->child, e->socket, f->stall_ms);
    return ST_OK;
}

enum status fleet_init(struct fleet *f, const struct config *c, const char *self,
                       const char *config, struct supervisor *s, const struct child *gateway,
                       struct reason *why)
{
    memset(f, 0, sizeof *f);
    f->supervisor = s;
    f->stall_ms = c->engine_stall_ms;
    snprintf(f->self, sizeof f->self, "%s", self);
    snprintf(f->config, sizeof f->config, "%s", config);
    f->engines = calloc(c->n_models, sizeof f->engines[0]);
    if (f->engines == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < c->n_models; i++) {
        f->n++; /* from here fleet_dispose frees it */
        if (describe(f, i, c, gateway) != ST_OK)
            return fail(why, ST_NO_MEMORY, "out of memory");
    }
    return ST_OK;
}

/* The number keeps "a/b" and "a-b" apart. */
void fleet_set_logs(struct fleet *f, const char *folder)
{
    for (size_t i = 0; i < f->n; i++) {
        char *log = f->engines[i].child.spec.log, *id;
        int n = snprintf(log, PROCESS_PATH_MAX, "%.500s/engine.", folder);

        if (f->n > 1) {
            n += snprintf(log + n, PROCESS_PATH_MAX - (size_t)n, "%zu.", i + 1);
            id = log + n;
            n += snprintf(id, PROCESS_PATH_MAX - (size_t)n, "%.95s.", f->engines[i].id);
            for (char *s = id; *s != '\0'; s++)
                if (!isalnum((unsigned char)*s) && strchr("._-", *s) == NULL)
                    *s = '-';
        }
        snprintf(log + n, PROCESS_PATH_MAX - (size_t)n, "log");
        engine_swap_set_log(&f->engines[i].swap, log);
    }
}

/* ---- start and end ---- */

static enum status end_orphans(const struct fleet_engine *e, struct reason *why)
{
    enum status st = child_end_orphan(&e->child, why);

    return st == ST_OK ? engine_swap_end_orphan(&e->swap, why) : st;
}

enum status fleet_end_orphans(const struct fleet *f, struct reason *why)
{
    enum status st = ST_OK;

    for (size_t i = 0; i < f->n && st == ST_OK; i++)
        st = end_orphans(&f->engines[i], why);
    return st;
}

void fleet_add(struct fleet *f)
{
    for (size_t i = 0; i < f->n; i++) {
        struct fleet_engine *e = &f->engines[i];

        engine_guard_init(&e->guard, &e->child, e->socket, f->stall_ms, e->idle_ms);
        supervisor_add_engine(f->supervisor, &e->guard);
        supervisor_add_swap(f->supervisor, &e->swap);
    }
}

enum status fleet_start(struct fleet *f, const char *engine_socket, struct reason *why)
{
    struct reason own = {0};
    enum status st = ST_OK;

    if (control_open(&f->control, engine_socket, fleet_answer, f, &own) == ST_OK)
        f->supervisor->control = &f->control;
    else
        supervisor_say(f->supervisor, "sluice model can't be heard: %s", own.text);
    for (size_t i = 0; i < f->n && st == ST_OK; i++)
        st = supervisor_start(f->supervisor, &f->engines[i].child, why);
    return st;
}

void fleet_dispose(struct fleet *f)
{
    control_close(&f->control);
    for (size_t i = 0; i < f->n; i++)
        if (f->engines[i].guard.child != NULL) { /* else the files are another supervisor's */
            engine_guard_dispose(&f->engines[i].guard);
            engine_swap_dispose(&f->engines[i].swap);
        }
    for (size_t i = 0; i < f->n; i++) {
        free(f->engines[i].id);
        free(f->engines[i].socket);
    }
    free(f->engines);
    f->engines = NULL;
    f->n = 0;
}

/* ---- on demand ---- */

static struct fleet_engine *find(struct fleet *f, const char *id)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->engines[i].id, id) == 0)
            return &f->engines[i];
    return NULL;
}

/* The last line of a log may hold anything, and JSON only UTF-8. */
static void put_reason(const char *text, struct buf *out)
{
    char reason[400];

    snprintf(reason, sizeof reason, "%s", text);
    for (char *c = reason; *c != '\0'; c++)
        if (*c < 0x20 || *c > 0x7E)
            *c = '?';
    json_put_cstr(out, reason);
}

/* The last one, under way or over. */
static void put_swap(const struct engine_swap *sw, struct buf *out)
{
    if (sw->state == ENGINE_SWAP_NONE)
        return;
    buf_printf(out,
               ",\"swap\":\"%s\",\"swap_number\":%u,\"swap_pid\":%d,\"swap_ready_ms\":%" PRId64
               ",\"swap_reason\":",
               engine_swap_state_name(sw->state), sw->n, (int)sw->other.pid, sw->ready_ms);
    put_reason(sw->reason, out);
}

static void put_engine(const struct fleet_engine *e, struct buf *out)
{
    enum engine_guard_state state = engine_guard_state(&e->guard);
    char reason[400] = "";

    if (state == ENGINE_GUARD_WAITING || state == ENGINE_GUARD_STOPPED)
        engine_guard_text(&e->child, reason, sizeof reason);
    buf_puts(out, "{\"id\":");
    json_put_cstr(out, e->id);
    buf_printf(out, ",\"state\":\"%s\",\"pid\":%d,\"reason\":", engine_guard_state_name(state),
               (int)e->child.pid);
    put_reason(reason, out);
    put_swap(&e->swap, out);
    buf_putc(out, '}');
}

/* Nothing but UTF-8 is JSON: a path of other bytes is not told. */
static void put_path(const char *path, struct buf *out)
{
    json_put_cstr(out, utf8_is_valid(path, strlen(path)) ? path : "");
}

static void put_states(const struct fleet *f, struct buf *out)
{
    buf_puts(out, "{\"ok\":true,\"config\":");
    put_path(f->config, out);
    buf_puts(out, ",\"models\":[");
    for (size_t i = 0; i < f->n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        put_engine(&f->engines[i], out);
    }
    buf_puts(out, "]}\n");
}

static void unload(struct fleet *f, struct fleet_engine *e, int64_t now_ms)
{
    if (!e->guard.is_unloaded)
        supervisor_say(f->supervisor, "%s is unloaded on demand", e->name);
    engine_guard_unload(&e->guard, now_ms);
}

static enum status load(struct fleet *f, struct fleet_engine *e, int64_t now_ms, struct reason *why)
{
    enum engine_guard_state was = engine_guard_state(&e->guard);
    enum status st;

    if (was == ENGINE_GUARD_LOADING || was == ENGINE_GUARD_READY ||
        e->swap.state == ENGINE_SWAP_LOADING) /* which loads it already */
        return ST_OK;
    st = engine_guard_load(&e->guard, now_ms, why);
    if (st == ST_OK)
        supervisor_say(f->supervisor, "%s is loaded on demand", e->name);
    return st;
}

/* What isn't loaded needs no successor. */
static enum status swap(struct fleet *f, struct fleet_engine *e, int64_t now_ms, struct reason *why)
{
    enum engine_guard_state state = engine_guard_state(&e->guard);
    enum status st;

    if (state == ENGINE_GUARD_LOADING && !engine_swap_is_under_way(&e->swap))
        return fail(why, ST_CONFLICT, "it is still loading: try again");
    if (state != ENGINE_GUARD_READY && !engine_swap_is_under_way(&e->swap))
        return load(f, e, now_ms, why);
    st = engine_swap_start(&e->swap, now_ms, why);
    if (st == ST_OK)
        supervisor_say(f->supervisor, "%s: its successor loads (pid %d)", e->name,
                       (int)e->swap.other.pid);
    return st;
}

void fleet_answer(void *fleet, const struct control_request *r, int64_t now_ms, struct buf *out)
{
    struct fleet *f = fleet;
    struct fleet_engine *e = find(f, r->model);
    struct reason why = {0};
    enum status st = ST_OK;

    if (r->op != CONTROL_LIST && e == NULL)
        st = fail(&why, ST_NOT_FOUND, "the supervisor has no model %s: it read its file at start",
                  r->model);
    else if (r->op == CONTROL_UNLOAD)
        unload(f, e, now_ms);
    else if (r->op == CONTROL_LOAD)
        st = load(f, e, now_ms, &why);
    else if (r->op == CONTROL_SWAP)
        st = swap(f, e, now_ms, &why);
    if (st == ST_OK)
        put_states(f, out);
    else
        control_put_error(out, why.text);
}
