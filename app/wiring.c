#include "app/wiring.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "app/config_models.h"
#include "app/model_settings.h"
#include "app/version.h"
#include "auth/auth.h"
#include "billing/billing.h"
#include "engine/engine.h"
#include "quota/quota.h"
#include "store/pg.h"

/* Rows not yet in Postgres stay in the journal, so this only saves the next start some work. */
#define BILLING_CLOSE_MS 3000

struct wiring {
    const struct config *cfg;
    const char *config_path;
    struct pg_pool *pool;
    struct auth *auth;
    struct billing *billing;
    struct api_interrupted *interrupted; /* what the last gateway left open */
    size_t n_interrupted, cap_interrupted;
    struct engine *engine;
    struct api *api;
};

static enum status open_auth(struct wiring *w, struct reason *why)
{
    const struct config *c = w->cfg;
    struct auth_config cfg = {
        .conninfo = c->postgres_conninfo,
        .pepper = c->auth_pepper,
        .pool = w->pool,
        .poll_ms = c->auth_poll_ms,
        .stale_max_ms = c->auth_stale_max_ms,
        .cache_max = (size_t)c->auth_cache_max,
    };

    return auth_open(&cfg, &w->auth, why);
}

/* Out of memory: it ends now, and its slots come free at their deadline. */
static bool on_interrupted(void *arg, const struct billing_admission *a,
                           const struct billing_final *f)
{
    struct wiring *w = arg;
    struct api_interrupted *to;

    if (w->n_interrupted == w->cap_interrupted) {
        size_t cap = w->cap_interrupted == 0 ? 64 : 2 * w->cap_interrupted;
        struct api_interrupted *more = reallocarray(w->interrupted, cap, sizeof *more);

        if (more == NULL)
            return false;
        w->interrupted = more;
        w->cap_interrupted = cap;
    }
    to = &w->interrupted[w->n_interrupted++];
    *to = (struct api_interrupted){.ask = {.request = a->id,
                                           .tenant_id = a->tenant_id,
                                           .project_id = a->project_id,
                                           .key_id = a->key_id},
                                   .final = *f,
                                   .is_held = w->cfg->engine_adopt_ms > 0};
    memcpy(to->model, a->model, sizeof to->model);
    return to->is_held;
}

_Static_assert(sizeof(((struct api_interrupted *)0)->model) ==
                   sizeof(((struct billing_admission *)0)->model),
               "a model's name fits");

static enum status open_billing(struct wiring *w, struct reason *why)
{
    const struct config *c = w->cfg;
    struct billing_config cfg = {
        .journal_dir = c->journal_dir,
        .conninfo = c->postgres_conninfo,
        .pool = w->pool,
        .post_ms = c->billing_post_ms,
        .segment_bytes = (size_t)c->journal_segment_bytes,
        .on_interrupted = on_interrupted,
        .arg = w,
    };

    return billing_open(&cfg, &w->billing, why);
}

static enum status open_engine(struct wiring *w, struct reason *why)
{
    const struct config *c = w->cfg;
    struct engine_model_config models[CONFIG_MODELS_MAX];
    struct engine_config cfg = {
        .models = models,
        .n_models = c->n_models,
        .text_threads = (unsigned)c->text_threads,
        .text_queue = (size_t)c->text_queue,
        .silence_ms = c->engine_stall_ms,
        .load_wait_ms = c->engine_load_wait_s * 1000,
        .reload = model_settings_reload,
        .reload_arg = (char *)w->config_path,
    };

    for (size_t i = 0; i < c->n_models; i++)
        models[i] = model_settings(&c->models[i]);
    return engine_open(&cfg, &w->engine, why);
}

static enum status start_api(struct wiring *w, struct reason *why)
{
    const struct config *c = w->cfg;
    struct api_parts parts = {.engine = w->engine, .auth = w->auth, .billing = w->billing};
    struct api_config cfg = {
        .listen = c->listen,
        .port = (int)c->port,
        .tls_port = (int)c->tls_port,
        .tls_cert = c->tls_cert,
        .tls_key = c->tls_key,
        .admin_listen = c->admin_listen,
        .admin_port = (int)c->admin_port,
        .n_loops = (unsigned)c->http_loops,
        .body_max_bytes = (size_t)c->body_max_bytes,
        .buffered_max_bytes = (size_t)c->buffered_max_bytes,
        .answers_max_bytes = (size_t)c->answers_max_bytes,
        .connections_max = (unsigned)c->connections_max,
        .ping_ms = c->ping_ms,
        .request_max_ms = c->request_max_ms,
        .reserve_output_tokens = c->reserve_output_tokens,
        .queue_max_ms = c->engine_queue_max_ms,
        .redis = {.socket_path = c->redis_socket,
                  .connect_timeout_ms = c->redis_connect_timeout_ms,
                  .command_timeout_ms = c->redis_command_timeout_ms,
                  .in_flight_max = (size_t)c->redis_in_flight_max},
        .build = version_text(),
        .interrupted = w->interrupted,
        .n_interrupted = w->n_interrupted,
        .adopt_ms = c->engine_adopt_ms,
    };

    return api_start(&cfg, &parts, &w->api, why);
}

static enum status open_pool(struct wiring *w, struct reason *why)
{
    const struct config *c = w->cfg;
    enum status st = pg_pool_start(c->postgres_conninfo, (unsigned)c->postgres_threads,
                                   (size_t)c->postgres_queue, &w->pool);

    if (st != ST_OK)
        return fail(why, st, "Postgres threads did not start: %s", status_text(st));
    return ST_OK;
}

enum status wiring_open(const struct config *cfg, const char *config_path, struct wiring **out,
                        struct reason *why)
{
    struct wiring *w = calloc(1, sizeof *w);
    enum status st;

    if (w == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    w->cfg = cfg;
    w->config_path = config_path;
    st = open_pool(w, why);
    if (st == ST_OK)
        st = open_auth(w, why);
    if (st == ST_OK)
        st = open_billing(w, why);
    if (st == ST_OK)
        st = open_engine(w, why);
    if (st == ST_OK)
        st = start_api(w, why);
    if (st != ST_OK) {
        wiring_close(w);
        return st;
    }
    *out = w;
    return ST_OK;
}

void wiring_close(struct wiring *w)
{
    if (w == NULL)
        return;
    if (w->api != NULL) {
        api_drain(w->api, w->cfg->drain_ms);
        api_stop(w->api);
    }
    if (w->engine != NULL)
        engine_close(w->engine);
    if (w->billing != NULL)
        billing_close(w->billing, BILLING_CLOSE_MS);
    auth_close(w->auth);
    pg_pool_stop(w->pool);
    free(w->interrupted);
    free(w);
}
