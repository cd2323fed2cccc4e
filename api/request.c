#include "api/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/loop_thread.h"
#include "api/respond.h"
#include "api/routes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

/* In the H2O request's pool: its disposal tells that the HTTP side is over. */
struct http_hook {
    struct request *request;
};

static void unlink_live(struct request *r)
{
    struct api_loop *l = r->loop;

    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        l->live = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    l->n_live--;
}

static void link_live(struct request *r)
{
    struct api_loop *l = r->loop;

    r->next = l->live;
    if (l->live != NULL)
        l->live->prev = r;
    l->live = r;
    l->n_live++;
}

static void free_request(struct request *r)
{
    if (r->route != NULL && r->route->handler->dispose != NULL)
        r->route->handler->dispose(r);
    free(r);
}

static void note_gone(struct request *r)
{
    if (r->gone || r->answered)
        return;
    r->gone = true;
    r->http_status = error_info(ERROR_GONE)->http;
    metrics_add(&r->loop->metrics, METRIC_CLIENT_GONE, 1);
    request_cancel(r, ERROR_GONE);
}

static void on_http_dispose(void *p)
{
    struct request *r = ((struct http_hook *)p)->request;
    /* The pool dies with the request, whose fields can still be read here. H2O notes when the head
     * of the answer goes out (the end's time is set by a reset, too): an answer that we gave at
     * once but that a reset overtook is unfinished. */
    bool finished = r->answered && r->http->timestamps.response_start_at.tv_sec != 0;

    r->loop->buffered_bytes -= r->body_bytes;
    connection_leave(r->conn, finished);
    r->http = NULL;
    r->conn = NULL;
    if (r->work_done)
        free_request(r);
    else
        note_gone(r);
}

static void hook_http(struct request *r, struct connection *c, h2o_req_t *http)
{
    struct http_hook *hook = h2o_mem_alloc_shared(&http->pool, sizeof *hook, on_http_dispose);

    hook->request = r;
    r->http = http;
    r->conn = c;
    r->body_bytes = http->entity.len;
    r->loop->buffered_bytes += r->body_bytes;
}

/* The log's line; inputs are our own names and numbers, never content. */
static void log_end(const struct request *r)
{
    enum log_level level = r->route != NULL && r->route->is_quiet ? LOG_DEBUG : LOG_INFO;

    log_write(level, r->name, "request.end",
              "method=%s path=%s status=%d tenant=%" PRId64
              " key=%s model=%s prompt_tokens=%" PRId64 " output_tokens=%" PRId64 " ms=%" PRId64,
              r->route != NULL ? r->route->method : "-", r->route != NULL ? r->route->path : "-",
              r->http_status, r->auth.principal.tenant_id, r->auth.principal.key_public_id,
              r->log_model != NULL ? r->log_model : "-", r->log_prompt_tokens, r->log_output_tokens,
              loop_now_ms(&r->loop->loop.super) - r->begin_ms);
}

void request_end(struct request *r)
{
    r->work_done = true;
    unlink_live(r);
    metrics_request(&r->loop->metrics, route_index(r->route), r->http_status);
    log_end(r);
    if (r->http == NULL)
        free_request(r);
}

void request_fail(struct request *r, const struct api_error *e)
{
    respond_error(r, e);
    request_end(r);
}

void request_continue(struct request *r)
{
    const request_stage *stages = r->route->handler->stages;

    while (stages[r->stage] != NULL)
        if (!stages[r->stage++](r))
            return;
}

void request_cancel(struct request *r, enum error_kind why)
{
    if (r->route != NULL && r->route->handler->on_cancel != NULL)
        r->route->handler->on_cancel(r, why);
}

void request_drop(struct request *r)
{
    struct api_error e = {.kind = ERROR_GONE};

    note_gone(r);
    if (r->http == NULL || r->started)
        return; /* a stream: its handler has cut it */
    r->http->http1_is_persistent = 0;
    respond_error(r, &e);
}

static bool check_buffered(struct request *r, struct api_error *e)
{
    if (r->loop->buffered_bytes <= r->loop->api->cfg.buffered_max_bytes)
        return true;
    error_set(e, ERROR_OVERLOADED, "", "The server holds too many request bodies. Try again.");
    e->retry_after_ms = 1000;
    return false;
}

static bool find_route(struct request *r, struct api_error *e)
{
    h2o_req_t *http = r->http;
    const char *allow = NULL;
    enum error_kind kind =
        route_find(http->method.base, http->method.len, http->path_normalized.base,
                   http->path_normalized.len, r->conn->kind, &r->route, &allow);

    if (kind == ERROR_NONE)
        return true;
    if (allow != NULL)
        respond_header(r, "allow", allow);
    return error_set(e, kind, "", "%s", "");
}

static struct request *new_request(struct connection *c, h2o_req_t *http)
{
    struct request *r = calloc(1, sizeof *r);
    char hex[ID_HEX_BYTES];

    if (r == NULL)
        return NULL;
    r->loop = c->loop;
    r->begin_ms = loop_now_ms(&c->loop->loop.super);
    r->begin_us = clock_mono_us();
    r->begin_wall_us = clock_wall_us();
    r->id = id_new(r->begin_wall_us / 1000);
    id_to_hex(&r->id, hex);
    snprintf(r->name, sizeof r->name, "req_%s", hex);
    hook_http(r, c, http);
    link_live(r);
    return r;
}

void request_start(struct connection *c, h2o_req_t *http)
{
    struct api_error e = {0};
    struct request *r;

    if (!connection_enter(c)) {
        h2o_send_error_503(http, "Service Unavailable", "", H2O_SEND_ERROR_HTTP1_CLOSE_CONNECTION);
        return;
    }
    r = new_request(c, http);
    if (r == NULL) {
        c->live--;
        h2o_send_error_503(http, "Service Unavailable", "", H2O_SEND_ERROR_HTTP1_CLOSE_CONNECTION);
        return;
    }
    if (find_route(r, &e) && check_buffered(r, &e))
        request_continue(r);
    else
        request_fail(r, &e);
}

/* ---- authenticate ---- */

/* What follows "Bearer " (any case), or NULL. */
static const char *bearer(h2o_req_t *http, size_t *len)
{
    static const char scheme[] = "bearer ";
    ssize_t at = h2o_find_header(&http->headers, H2O_TOKEN_AUTHORIZATION, -1);
    h2o_iovec_t v;

    if (at == -1)
        return NULL;
    v = http->headers.entries[at].value;
    if (v.len < sizeof scheme || strncasecmp(v.base, scheme, sizeof scheme - 1) != 0)
        return NULL;
    v = h2o_iovec_init(v.base + sizeof scheme - 1, v.len - (sizeof scheme - 1));
    while (v.len > 0 && v.base[0] == ' ')
        v = h2o_iovec_init(v.base + 1, v.len - 1);
    *len = v.len;
    return v.base;
}

static bool refuse(struct request *r, struct api_error *e)
{
    request_fail(r, e);
    return false;
}

/* The check's answer: true when the key may do this. */
static bool judge(struct request *r)
{
    const struct auth_check *c = &r->auth;
    struct api_error e = {.kind = error_from_status(c->status), .reason = c->reason};

    if (c->status == ST_UNAVAILABLE || c->status == ST_OVERLOADED)
        e.retry_after_ms = 1000;
    if (c->status != ST_OK)
        return refuse(r, &e);
    if ((c->principal.scopes & r->route->scope) != 0)
        return true;
    error_set(&e, ERROR_SCOPE, "", "%s", "");
    return refuse(r, &e);
}

static void on_auth(struct auth_check *c)
{
    struct request *r = CONTAINER_OF(c, struct request, auth);

    if (r->gone) {
        request_end(r);
        return;
    }
    if (judge(r))
        request_continue(r);
}

bool request_authenticate(struct request *r)
{
    struct api_error e = {0};
    size_t len = 0;
    const char *credential = bearer(r->http, &len);

    if (credential == NULL) {
        error_set(&e, ERROR_API_KEY, "",
                  "You didn't provide an API key. Send it in an Authorization header: "
                  "'Authorization: Bearer YOUR_KEY'.");
        return refuse(r, &e);
    }
    r->auth.loop = &r->loop->loop.super;
    r->auth.on_done = on_auth;
    if (!auth_check(r->loop->api->parts.auth, &r->auth, credential, len, r->begin_wall_us / 1000))
        return false;
    return judge(r);
}
