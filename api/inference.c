#include "api/inference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/loop_thread.h"
#include "api/params_model.h"
#include "api/respond.h"
#include "api/routes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

/* What a client waits before it tries again when a part is away: Redis and the engine's link
 * reconnect within about as long. */
#define AWAY_RETRY_MS 1000
/* Megabytes of JSON take seconds, for which every stream of the loop would wait. */
#define PARSE_HERE_BYTES 65536

static bool refuse(struct request *r, struct api_error *e)
{
    request_fail(r, e);
    return false;
}

static bool refuse_kind(struct request *r, enum error_kind kind)
{
    struct api_error e = {.kind = kind};

    if (kind == ERROR_UNAVAILABLE || kind == ERROR_OVERLOADED)
        e.retry_after_ms = AWAY_RETRY_MS;
    return refuse(r, &e);
}

/* ---- parse ---- */

/* OpenAI's bounds of the header: printable ASCII, 512 there, what a usage row holds here. */
static bool read_client_request_id(struct inference *i, struct api_error *e)
{
    static const char name[] = "x-client-request-id";
    h2o_req_t *http = i->request->http;
    ssize_t at = h2o_find_header_by_str(&http->headers, name, sizeof name - 1, -1);
    h2o_iovec_t v;

    if (at == -1)
        return true;
    v = http->headers.entries[at].value;
    if (v.len > CLIENT_REQUEST_ID_MAX)
        return error_set(e, ERROR_VALUE, "", "The header '%s' has more than %d characters.", name,
                         CLIENT_REQUEST_ID_MAX);
    for (size_t k = 0; k < v.len; k++)
        if (v.base[k] < 0x20 || v.base[k] > 0x7E)
            return error_set(e, ERROR_VALUE, "", "The header '%s' is not printable ASCII.", name);
    memcpy(i->client_request_id, v.base, v.len);
    return true;
}

static bool find_model(struct inference *i, struct api_error *e)
{
    struct params *p = &i->params;

    i->model = engine_model_find(i->request->loop->api->parts.engine, p->model);
    if (i->model == NULL)
        return error_set(e, ERROR_MODEL, "model",
                         "The model '%s' does not exist or you do not have access to it.",
                         p->model);
    if (!params_check_model(p, i->model, e))
        return false;
    params_use_defaults(p, &i->model->defaults);
    i->request->log_model = i->model->id;
    return true;
}

static bool check_head(struct inference *i, struct api_error *e)
{
    struct request *r = i->request;
    size_t max = r->loop->api->cfg.body_max_bytes;

    if (r->http->entity.len > max)
        return error_set(e, ERROR_BODY, "", "The request body has more than %zu bytes.", max);
    return read_client_request_id(i, e);
}

static bool parse_body(struct inference *i, const char *body, size_t len, struct api_error *e)
{
    return params_parse((enum endpoint)i->request->route->endpoint, body, len, &i->params, e);
}

static void on_parsed(struct loop_message *m)
{
    struct inference *i = CONTAINER_OF(m, struct inference, parse.message);
    struct request *r = i->request;

    free(i->parse.body);
    if (i->cancelled != ERROR_NONE)
        refuse_kind(r, i->cancelled);
    else if (i->parse.ok && find_model(i, &i->parse.error))
        request_continue(r);
    else
        request_fail(r, &i->parse.error);
}

/* On the parser's thread. */
static void on_parse(struct work *w, void *thread_state)
{
    struct inference *i = CONTAINER_OF(w, struct inference, parse.work);
    struct body_parse *p = &i->parse;

    (void)thread_state;
    p->ok = parse_body(i, p->body, p->len, &p->error);
    p->message.on_message = on_parsed;
    loop_post(&i->request->loop->loop.super, &p->message);
}

static bool parse_later(struct inference *i)
{
    struct request *r = i->request;
    struct body_parse *p = &i->parse;

    p->len = r->http->entity.len;
    p->body = malloc(p->len);
    p->work.on_run = on_parse;
    if (p->body != NULL) {
        memcpy(p->body, r->http->entity.base, p->len);
        if (worker_submit(r->loop->api->parser, &p->work) == ST_OK)
            return false;
        free(p->body);
    }
    return refuse_kind(r, ERROR_OVERLOADED);
}

static bool stage_parse(struct request *r)
{
    struct inference *i = calloc(1, sizeof *i);
    struct api_error e = {0};

    if (i == NULL)
        return refuse_kind(r, ERROR_OVERLOADED);
    r->state = i;
    i->request = r;
    if (r->loop->cancelling)
        return refuse_kind(r, ERROR_UNAVAILABLE);
    if (!check_head(i, &e))
        return refuse(r, &e);
    if (r->http->entity.len > PARSE_HERE_BYTES)
        return parse_later(i);
    if (parse_body(i, r->http->entity.base, r->http->entity.len, &e) && find_model(i, &e))
        return true;
    return refuse(r, &e);
}

/* ---- prepare ---- */

static void on_prepared(struct engine_prepare *p)
{
    struct inference *i = CONTAINER_OF(p, struct inference, prepare);
    struct request *r = i->request;
    struct api_error e = {.kind = error_from_status(p->status), .reason = p->reason};

    if (i->cancelled != ERROR_NONE) {
        refuse_kind(r, i->cancelled);
        return;
    }
    if (p->status == ST_OK) {
        r->log_prompt_tokens = p->n_ids;
        request_continue(r);
        return;
    }
    if (e.reason.param[0] == '\0' && (p->status == ST_TOO_LONG || p->status == ST_INVALID))
        snprintf(e.reason.param, sizeof e.reason.param, "%s",
                 i->params.kind == ENGINE_PROMPT_CHAT ? "messages" : "prompt");
    request_fail(r, &e);
}

static bool stage_prepare(struct request *r)
{
    struct inference *i = r->state;

    i->prepare = (struct engine_prepare){
        .loop = &r->loop->loop.super,
        .on_done = on_prepared,
        .model = i->model,
        .tenant = (uint64_t)r->auth.principal.tenant_id,
        .kind = i->params.kind,
        .messages = i->params.messages,
        .documents = i->params.documents,
        .extra = i->params.template_kwargs,
        .add_generation_prompt = i->params.add_generation_prompt,
        .continue_final_message = i->params.continue_final_message,
        .text = i->params.text,
        .text_len = i->params.text_len,
        .id_array = i->params.ids,
        .control_tokens = (r->auth.principal.scopes & SCOPE_CONTROL_TOKENS) != 0,
    };
    if (engine_prepare(r->loop->api->parts.engine, &i->prepare) != ST_OK)
        return refuse_kind(r, ERROR_OVERLOADED);
    return false;
}

/* ---- admit ---- */

static struct quota_limits limits_of(const struct auth_limits *l)
{
    return (struct quota_limits){l->requests_per_min, l->tokens_per_min, l->concurrency};
}

/* The output that each choice may have at most, from what the context leaves. */
static bool bound_output(struct inference *i, struct api_error *e)
{
    int64_t left = (int64_t)i->model->context_tokens - i->prepare.n_ids;
    int64_t want = i->params.max_tokens;
    const char *field = i->params.kind == ENGINE_PROMPT_CHAT ? "messages" : "prompt";

    if (i->prepare.n_ids == 0)
        return error_set(e, ERROR_VALUE, field, "The prompt has no tokens.");
    if (left < 1)
        return error_set(e, ERROR_CONTEXT, field,
                         "The model's context has %u tokens; the prompt has %u.",
                         i->model->context_tokens, i->prepare.n_ids);
    if (want == -1)
        want = i->model->default_max_tokens != 0 ? i->model->default_max_tokens : left;
    i->output_cap = int64_min(want, left);
    if (i->output_cap > INT32_MAX / i->params.n_choices) /* what a usage row counts */
        return error_set(e, ERROR_VALUE, "n", "Invalid value for 'n': %lld choices of %lld tokens.",
                         (long long)i->params.n_choices, (long long)i->output_cap);
    return true;
}

static bool find_price(struct inference *i)
{
    enum status s = billing_price(i->request->loop->api->parts.billing, i->model->id, &i->price);

    if (s == ST_OK)
        return true;
    log_error(i->request->name, "billing.price", "model=%s status=%s", i->model->id,
              status_name(s));
    return refuse_kind(i->request, s == ST_NOT_FOUND ? ERROR_NO_PRICE : ERROR_UNAVAILABLE);
}

static void explain_refusal(const struct quota_grant *g, struct api_error *e)
{
    bool of_tokens = g->refused != NULL && strncmp(g->refused, "tokens", 6) == 0;
    const char *what = g->refused != NULL ? g->refused : "this key";

    if (g->status == ST_TOO_LARGE) {
        error_set(e, ERROR_RATE_NEVER, "",
                  "The request asks for more tokens than the limit on %s ever allows at once.",
                  what);
        return;
    }
    if (g->status != ST_LIMITED) {
        *e = (struct api_error){.kind = ERROR_UNAVAILABLE, .retry_after_ms = AWAY_RETRY_MS};
        return;
    }
    error_set(e, of_tokens ? ERROR_RATE_TOKENS : ERROR_RATE_REQUESTS, "",
              "Rate limit reached on %s. Please try again in %lld ms.", what,
              (long long)g->retry_after_ms);
    e->retry_after_ms = int64_max(g->retry_after_ms, 1);
}

static void on_grant(void *arg, const struct quota_grant *g)
{
    struct inference *i = arg;
    struct request *r = i->request;
    struct api_error e = {0};

    if (g->status != ST_UNAVAILABLE) {
        r->has_rates = true;
        r->rate_requests = g->requests;
        r->rate_tokens = g->tokens;
    }
    if (g->status != ST_OK) {
        explain_refusal(g, &e);
        if (g->status != ST_UNAVAILABLE)
            metrics_add(&r->loop->metrics, METRIC_LIMITED, 1);
        request_fail(r, &e);
        return;
    }
    if (i->cancelled != ERROR_NONE) {
        quota_settle(r->loop->quota, &i->ask, -1);
        refuse_kind(r, i->cancelled);
        return;
    }
    request_continue(r);
}

static bool stage_admit(struct request *r)
{
    struct inference *i = r->state;
    const struct principal *who = &r->auth.principal;
    const struct api_config *cfg = &r->loop->api->cfg;
    struct api_error e = {0};

    if (!bound_output(i, &e))
        return refuse(r, &e);
    if (!find_price(i))
        return false;
    /* Just started, or its engine is away: nothing is reserved for a job that can't run. */
    if (!engine_link_serves(r->loop->link, i->model))
        return refuse_kind(r, ERROR_UNAVAILABLE);
    i->ask = (struct quota_ask){
        .request = r->id,
        .tenant_id = who->tenant_id,
        .project_id = who->project_id,
        .key_id = who->key_id,
        .tenant = limits_of(&who->tenant),
        .project = limits_of(&who->project),
        .key = limits_of(&who->key),
        .prompt_tokens = i->prepare.n_ids,
        .output_tokens = int64_min(i->output_cap, cfg->reserve_output_tokens) * i->params.n_choices,
        .slot_deadline_ms = cfg->request_max_ms,
    };
    quota_reserve(r->loop->quota, &i->ask, on_grant, i);
    return false;
}

/* ---- journal ---- */

static void on_journaled(struct billing_write *w)
{
    struct inference *i = CONTAINER_OF(w, struct inference, write);
    struct request *r = i->request;
    static const struct engine_end never_ran = {.status = ST_CANCELLED};

    if (w->status != ST_OK) {
        log_error(r->name, "journal.admission", "status=%s", status_name(w->status));
        metrics_add(&r->loop->metrics, METRIC_JOURNAL_FAILED, 1);
        quota_settle(r->loop->quota, &i->ask, -1);
        refuse_kind(r, ERROR_UNAVAILABLE);
        return;
    }
    metrics_add(&r->loop->metrics, METRIC_ADMITTED, 1);
    request_meter_begin(&i->meter, metrics_of_model(&r->loop->metrics, i->model), r->begin_us);
    if (i->cancelled != ERROR_NONE)
        inference_close(i, &never_ran);
    else
        request_continue(r);
}

static bool stage_journal(struct request *r)
{
    struct inference *i = r->state;
    const struct principal *who = &r->auth.principal;
    struct billing_admission a = {
        .id = r->id,
        .admitted_at_us = clock_wall_us(),
        .tenant_id = who->tenant_id,
        .project_id = who->project_id,
        .key_id = who->key_id,
        .stream = i->params.stream,
        .prompt_tokens = i->prepare.n_ids,
        .output_cap = i->output_cap * i->params.n_choices,
        .price = i->price,
    };

    i->admitted_at_us = a.admitted_at_us;
    i->admitted_ns = clock_mono_ns();
    snprintf(a.model, sizeof a.model, "%s", i->model->id);
    snprintf(a.endpoint, sizeof a.endpoint, "%s",
             r->route->endpoint == ENDPOINT_CHAT ? "chat.completions" : "completions");
    memcpy(a.client_request_id, i->client_request_id, sizeof a.client_request_id);
    i->write = (struct billing_write){.loop = &r->loop->loop.super, .on_done = on_journaled};
    billing_admit(r->loop->api->parts.billing, &i->write, &a);
    return false;
}

/* ---- the handler ---- */

static void on_cancel(struct request *r, enum error_kind why)
{
    struct inference *i = r->state;

    if (i == NULL)
        return;
    if (why == ERROR_GONE && i->stream.request != NULL)
        sse_break(&i->stream);
    if (i->cancelled != ERROR_NONE)
        return;
    i->cancelled = why;
    if (i->job != NULL)
        engine_cancel(i->job);
}

static void on_dispose(struct request *r)
{
    struct inference *i = r->state;

    if (i == NULL)
        return;
    loop_timer_stop(&r->loop->loop.super, &i->deadline);
    sse_dispose(&i->stream);
    choices_dispose(&i->choices);
    free(i->prepare.ids);
    params_dispose(&i->params);
    free(i);
}

static const request_stage stages[] = {
    request_authenticate, stage_parse,   stage_prepare, stage_admit,
    stage_journal,        inference_run, NULL,
};

const struct handler inference_handler = {
    .stages = stages,
    .on_cancel = on_cancel,
    .dispose = on_dispose,
};
