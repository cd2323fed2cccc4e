#include "api/server.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "api/listen.h"
#include "api/loop_thread.h"
#include "api/metrics_text.h"
#include "api/request.h"
#include "api/tls.h"
#include "base/clock.h"
#include "base/log.h"

/* A request line, its headers and each part of a body must come in this time; an idle connection is
 * kept as long. Clients keep theirs for less. */
#define IDLE_MS 60000
/* Streams of one connection that may be in hand at once: what H2O 2.2.5 announces to clients and
 * can't be told otherwise; it refuses more (REFUSED_STREAM), and a client opens another connection.
 */
#define STREAMS_MAX 100
/* A loop turns at least every second; one that didn't for so long hangs. */
#define BEAT_MAX_MS 5000
/* Large bodies that may wait for their parsing, each copied; more are refused. */
#define PARSER_QUEUE 16
/* After a drain's deadline: how long cancelled requests have for their settlement. */
#define CANCEL_MS 5000

static int on_req(h2o_handler_t *self, h2o_req_t *http)
{
    (void)self;
    request_start(connection_of(http), http);
    return 0;
}

static void init_conf(struct api *a)
{
    h2o_hostconf_t *host;
    h2o_pathconf_t *path;

    h2o_config_init(&a->conf);
    a->conf.server_name = h2o_iovec_init(H2O_STRLIT("sluice"));
    a->conf.max_request_entity_size = H2O_ENTITY_MAX_BYTES;
    a->conf.http1.req_timeout = IDLE_MS;
    a->conf.http2.idle_timeout = IDLE_MS;
    a->conf.http2.max_concurrent_requests_per_connection = STREAMS_MAX;
    host = h2o_config_register_host(&a->conf, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    path = h2o_config_register_path(host, "/", 0);
    h2o_create_handler(path, sizeof(h2o_handler_t))->on_req = on_req;
}

static enum status add_listener(struct api *a, const char *address, int port,
                                enum listener_kind kind, struct reason *why)
{
    int fd = -1;
    enum status s;

    if (port == 0)
        return ST_OK;
    s = listen_open(address, port, &fd, why);
    if (s != ST_OK)
        return s;
    a->listeners[a->n_listeners++] = (struct listener){fd, kind};
    log_info(NULL, "api.listen", "address=%s port=%d kind=%s", address, port,
             kind == LISTENER_TLS     ? "tls"
             : kind == LISTENER_ADMIN ? "admin"
                                      : "plain");
    return ST_OK;
}

static enum status open_listeners(struct api *a, struct reason *why)
{
    const struct api_config *c = &a->cfg;
    enum status s = ST_OK;

    if (c->tls_port != 0)
        s = tls_open(c->tls_cert, c->tls_key, &a->tls, why);
    if (s == ST_OK)
        s = add_listener(a, c->listen, c->port, LISTENER_MAIN, why);
    if (s == ST_OK)
        s = add_listener(a, c->listen, c->tls_port, LISTENER_TLS, why);
    if (s == ST_OK)
        s = add_listener(a, c->admin_listen, c->admin_port, LISTENER_ADMIN, why);
    return s;
}

static void close_listeners(struct api *a)
{
    while (a->n_listeners > 0)
        close(a->listeners[--a->n_listeners].fd);
}

static enum status start_parser(struct api *a, struct reason *why)
{
    const struct worker_config cfg = {.name = "parser", .n_threads = 1, .capacity = PARSER_QUEUE};
    enum status s = worker_start(&cfg, &a->parser);

    return s == ST_OK ? s : fail(why, s, "the parser's thread did not start: %s", status_text(s));
}

static void read_engines(struct api *a, struct engine_stats *engines, uint32_t *contexts)
{
    struct engine *e = a->parts.engine;

    for (size_t i = 0; i < a->n_models; i++) {
        const struct engine_model *m = engine_model_at(e, i);
        const struct engine_revision *r = engine_revision_get(m);

        engine_stats_of(e, m, &engines[i]);
        contexts[i] = r != NULL ? r->context_tokens : 0;
        engine_revision_put(r);
    }
}

static void build_metrics(struct buf *b, void *arg)
{
    struct api *a = arg;
    struct engine_stats engine, *engines = calloc(a->n_models, sizeof *engines);
    uint32_t *contexts = calloc(a->n_models, sizeof *contexts);
    struct billing_stats billing;

    if (engines == NULL || contexts == NULL) {
        free(engines);
        free(contexts);
        b->failed = true;
        return;
    }
    engine_stats(a->parts.engine, &engine);
    read_engines(a, engines, contexts);
    billing_stats(a->parts.billing, &billing);
    metrics_text_put(b, &(struct metrics_view){.loops = a->loop_metrics,
                                               .n_loops = a->cfg.n_loops,
                                               .engine = &engine,
                                               .engines = engines,
                                               .context_tokens = contexts,
                                               .billing = &billing,
                                               .answer_bytes = atomic_load(&a->answers.held),
                                               .wall_ms = clock_wall_ms()});
    free(engines);
    free(contexts);
}

static enum status init_loop(struct api *a, struct api_loop *l)
{
    struct metrics *m = &l->metrics;

    l->models_ready = calloc(a->n_models, sizeof l->models_ready[0]);
    if (l->models_ready == NULL || metrics_init(m, a->n_models) != ST_OK)
        return ST_NO_MEMORY;
    for (size_t i = 0; i < a->n_models; i++)
        m->models[i].model = engine_model_at(a->parts.engine, i);
    return ST_OK;
}

/* Of all loops before the first one starts: each may be asked for the page of all. */
static enum status init_loops(struct api *a)
{
    a->loops = calloc(a->cfg.n_loops, sizeof *a->loops);
    a->loop_metrics = calloc(a->cfg.n_loops, sizeof(struct metrics *));
    if (a->loops == NULL || a->loop_metrics == NULL)
        return ST_NO_MEMORY;
    for (unsigned i = 0; i < a->cfg.n_loops; i++) {
        a->loop_metrics[i] = &a->loops[i].metrics;
        if (init_loop(a, &a->loops[i]) != ST_OK)
            return ST_NO_MEMORY;
    }
    return ST_OK;
}

/* So that no loop waits for the first one. */
static bool prepare_page(struct api *a)
{
    struct buf text;
    bool ok;

    buf_init(&text);
    metrics_page_get(&a->metrics_page, clock_mono_ms(), &text);
    ok = !text.failed;
    buf_dispose(&text);
    return ok;
}

static enum status start_loops(struct api *a, struct reason *why)
{
    if (init_loops(a) != ST_OK || !prepare_page(a))
        return fail(why, ST_NO_MEMORY, "out of memory");
    while (a->n_loops < a->cfg.n_loops) {
        enum status s = loop_thread_start(&a->loops[a->n_loops], a);

        if (s != ST_OK)
            return fail(why, s, "a loop did not start: %s", status_text(s));
        a->n_loops++;
    }
    return ST_OK;
}

enum status api_start(const struct api_config *cfg, const struct api_parts *parts, struct api **out,
                      struct reason *why)
{
    struct api *a = calloc(1, sizeof *a);
    enum status s;

    if (a == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    a->cfg = *cfg;
    a->parts = *parts;
    a->answers.max = cfg->answers_max_bytes;
    while (engine_model_at(parts->engine, a->n_models) != NULL)
        a->n_models++;
    init_conf(a);
    metrics_page_init(&a->metrics_page, build_metrics, a);
    s = open_listeners(a, why);
    if (s == ST_OK)
        s = start_parser(a, why);
    if (s == ST_OK)
        s = start_loops(a, why);
    if (s != ST_OK) {
        api_stop(a);
        return s;
    }
    *out = a;
    return ST_OK;
}

static bool all_idle(struct api *a)
{
    for (unsigned i = 0; i < a->n_loops; i++)
        if (!atomic_load(&a->loops[i].idle))
            return false;
    return true;
}

/* The main thread does no work; the loops publish their state at every tick. */
static void wait_idle(struct api *a, int64_t max_ms)
{
    static const struct timespec pause = {.tv_nsec = TICK_MS * 1000000L};
    int64_t end_ms = clock_mono_ms() + max_ms;

    while (!all_idle(a) && clock_mono_ms() < end_ms)
        nanosleep(&pause, NULL);
}

void api_drain(struct api *a, int64_t deadline_ms)
{
    if (atomic_exchange(&a->draining, true))
        return;
    close_listeners(a);
    for (unsigned i = 0; i < a->n_loops; i++)
        loop_thread_drain(&a->loops[i]);
    wait_idle(a, deadline_ms);
    if (all_idle(a))
        return;
    log_warn(NULL, "api.drain", "the deadline has come: cancelling what is left");
    for (unsigned i = 0; i < a->n_loops; i++)
        loop_thread_cancel(&a->loops[i]);
    wait_idle(a, CANCEL_MS);
}

void api_stop(struct api *a)
{
    for (unsigned i = 0; i < a->n_loops; i++)
        loop_thread_stop(&a->loops[i]);
    worker_stop(a->parser);
    metrics_page_dispose(&a->metrics_page);
    for (unsigned i = 0; a->loops != NULL && i < a->cfg.n_loops; i++) {
        metrics_dispose(&a->loops[i].metrics);
        free(a->loops[i].models_ready);
    }
    free(a->loop_metrics);
    free(a->loops);
    close_listeners(a);
    h2o_config_dispose(&a->conf);
    SSL_CTX_free(a->tls);
    free(a);
}

void api_health(struct api *a, struct api_health *out)
{
    int64_t now_ms = clock_mono_ms();
    struct engine_stats engine;

    engine_stats(a->parts.engine, &engine);
    *out = (struct api_health){
        .loops = true,
        .engine = !engine.stalled, /* an answering socket alone is no engine at work */
        .redis = true,
        .auth = auth_is_ready(a->parts.auth),
        .billing = billing_is_ready(a->parts.billing),
        .serving = !atomic_load(&a->draining),
    };
    for (unsigned i = 0; i < a->cfg.n_loops; i++) {
        struct api_loop *l = &a->loops[i];

        out->loops &= now_ms - atomic_load(&l->beat_ms) < BEAT_MAX_MS;
        out->engine &= atomic_load(&l->engine_ready);
        out->redis &= atomic_load(&l->redis_ready);
    }
}

bool api_serves_model(struct api *a, size_t i)
{
    for (unsigned k = 0; k < a->cfg.n_loops; k++)
        if (!atomic_load(&a->loops[k].models_ready[i]))
            return false;
    return true;
}
