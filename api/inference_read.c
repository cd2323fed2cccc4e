/* The request as it comes: its body to checked parameters, its prompt to token ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/inference.h"
#include "api/loop_thread.h"
#include "api/params_model.h"
#include "api/routes.h"
#include "base/size.h"

/* Megabytes of JSON take seconds, for which every stream of the loop would wait. */
#define PARSE_HERE_BYTES 65536

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
    const struct engine_model *model =
        engine_model_find(i->request->loop->api->parts.engine, p->model);

    if (model == NULL)
        return error_set(e, ERROR_MODEL, "model",
                         "The model '%s' does not exist or you do not have access to it.",
                         p->model);
    i->request->log_model = model->id;
    i->revision = engine_revision_get(model);
    if (i->revision == NULL) {
        *e = (struct api_error){.kind = ERROR_UNAVAILABLE, .retry_after_ms = API_RETRY_MS};
        return false;
    }
    if (!params_check_model(p, i->revision, e))
        return false;
    params_use_defaults(p, &i->revision->defaults);
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
        inference_refuse_kind(r, i->cancelled);
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
    return inference_refuse_kind(r, ERROR_OVERLOADED);
}

bool inference_parse(struct request *r)
{
    struct inference *i = calloc(1, sizeof *i);
    struct api_error e = {0};

    if (i == NULL)
        return inference_refuse_kind(r, ERROR_OVERLOADED);
    r->state = i;
    i->request = r;
    if (r->loop->cancelling)
        return inference_refuse_kind(r, ERROR_UNAVAILABLE);
    if (answers_are_full(&r->loop->api->answers))
        return inference_refuse_kind(r, ERROR_OVERLOADED);
    if (!check_head(i, &e))
        return inference_refuse(r, &e);
    if (r->http->entity.len > PARSE_HERE_BYTES)
        return parse_later(i);
    if (parse_body(i, r->http->entity.base, r->http->entity.len, &e) && find_model(i, &e))
        return true;
    return inference_refuse(r, &e);
}

/* ---- prepare ---- */

static void on_prepared(struct engine_prepare *p)
{
    struct inference *i = CONTAINER_OF(p, struct inference, prepare);
    struct request *r = i->request;
    struct api_error e = {.kind = error_from_status(p->status), .reason = p->reason};

    if (i->cancelled != ERROR_NONE) {
        inference_refuse_kind(r, i->cancelled);
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

bool inference_prepare(struct request *r)
{
    struct inference *i = r->state;

    i->prepare = (struct engine_prepare){
        .loop = &r->loop->loop.super,
        .on_done = on_prepared,
        .revision = i->revision,
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
        return inference_refuse_kind(r, ERROR_OVERLOADED);
    return false;
}
