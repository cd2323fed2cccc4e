/* GET /livez, /readyz (and /health), /metrics: for machines that watch this one. */
#include <inttypes.h>
#include <string.h>

#include "api/loop_thread.h"
#include "api/respond.h"
#include "api/routes.h"
#include "base/json.h"
#include "base/size.h"

static void put_parts(struct buf *b, const struct api_health *h)
{
    const struct {
        const char *name;
        bool ok;
    } parts[] = {
        {"loops", h->loops}, {"engine", h->engine},   {"redis", h->redis},
        {"auth", h->auth},   {"billing", h->billing}, {"serving", h->serving},
    };

    for (size_t i = 0; i < COUNT_OF(parts); i++)
        buf_printf(b, "%s\"%s\":%s", i > 0 ? "," : "", parts[i].name,
                   parts[i].ok ? "true" : "false");
}

/* Which models' engines are there: one that is away takes only its own requests along. */
static void put_models(struct buf *b, struct api *a)
{
    for (size_t i = 0; i < a->n_models; i++) {
        if (i > 0)
            buf_putc(b, ',');
        json_put_cstr(b, engine_model_at(a->parts.engine, i)->id);
        buf_puts(b, api_serves_model(a, i) ? ":true" : ":false");
    }
}

/* Those that were unloaded while idle: true above, as a request loads them. */
static void put_asleep(struct buf *b, struct api *a)
{
    struct engine_stats st;
    unsigned n = 0;

    for (size_t i = 0; i < a->n_models; i++) {
        const struct engine_model *m = engine_model_at(a->parts.engine, i);

        engine_stats_of(a->parts.engine, m, &st);
        if (!st.asleep)
            continue;
        buf_puts(b, n++ == 0 ? ",\"asleep\":[" : ",");
        json_put_cstr(b, m->id);
    }
    if (n > 0)
        buf_putc(b, ']');
}

/* Nothing: its engine is there, or nobody said why not. */
static void put_absence(struct buf *text, const struct engine_stats *st)
{
    if (st->stalled)
        buf_printf(text, "no step for %" PRId64 " s while %u requests wait",
                   st->last_step_age_ms / 1000, st->running + st->waiting);
    else if (!st->connected && !st->asleep && st->absence[0] != '\0')
        buf_puts(text, st->absence);
}

/* Why there is no engine, where that is known: its supervisor says it, or its own numbers. Of
 * several the first that has something to say, with its model: "engine ID: why". */
static void put_reason(struct buf *b, struct api *a)
{
    struct engine_stats st;
    const char *id = "";
    struct buf text;

    buf_init(&text);
    for (size_t i = 0; i < a->n_models && text.len == 0; i++) {
        const struct engine_model *m = engine_model_at(a->parts.engine, i);

        id = m->id;
        engine_stats_of(a->parts.engine, m, &st);
        put_absence(&text, &st);
    }
    if (text.len > 0) {
        buf_puts(b, ",\"reason\":\"engine");
        if (a->n_models > 1) {
            buf_putc(b, ' ');
            json_put_chars(b, id, strlen(id));
        }
        buf_puts(b, ": ");
        json_put_chars(b, text.data, text.len);
        buf_putc(b, '"');
    }
    buf_dispose(&text);
}

static void answer(struct request *r, bool ok, const struct api_health *parts)
{
    struct buf body;

    buf_init(&body);
    buf_printf(&body, "{\"status\":\"%s\"", ok ? "ok" : "unavailable");
    if (parts != NULL) {
        buf_puts(&body, ",\"parts\":{");
        put_parts(&body, parts);
        buf_puts(&body, "},\"models\":{");
        put_models(&body, r->loop->api);
        buf_putc(&body, '}');
        put_asleep(&body, r->loop->api);
        put_reason(&body, r->loop->api);
    }
    buf_putc(&body, '}');
    respond_json(r, ok ? 200 : 503, &body);
    buf_dispose(&body);
    request_end(r);
}

/* Alive: every loop turns. That parts are away is no reason to restart this process. */
static bool stage_livez(struct request *r)
{
    struct api_health h;

    api_health(r->loop->api, &h);
    answer(r, h.loops, NULL);
    return false;
}

static bool stage_readyz(struct request *r)
{
    struct api_health h;

    api_health(r->loop->api, &h);
    answer(r, h.loops && h.engine && h.redis && h.auth && h.billing && h.serving, &h);
    return false;
}

/* On the public listeners only for programs on this machine: to others there is no such URL. */
static bool stage_metrics(struct request *r)
{
    struct api_error e = {.kind = ERROR_URL};
    struct buf body;

    if (r->conn->kind != LISTENER_ADMIN && !connection_is_loopback(r->conn)) {
        request_fail(r, &e);
        return false;
    }
    buf_init(&body);
    metrics_page_get(&r->loop->api->metrics_page, loop_now_ms(&r->loop->loop.super), &body);
    if (body.failed)
        respond_json(r, 500, &body);
    else
        respond(r, 200, "text/plain; version=0.0.4; charset=utf-8", body.data, body.len);
    buf_dispose(&body);
    request_end(r);
    return false;
}

static const request_stage livez_stages[] = {stage_livez, NULL};
static const request_stage readyz_stages[] = {stage_readyz, NULL};
static const request_stage metrics_stages[] = {stage_metrics, NULL};

const struct handler livez_handler = {.stages = livez_stages};
const struct handler readyz_handler = {.stages = readyz_stages};
const struct handler metrics_handler = {.stages = metrics_stages};
