/* Whether it may run: what it can ask for at all, its price, its limits, its record in the journal.
 */
#include <stdio.h>
#include <string.h>

#include "api/inference.h"
#include "api/loop_thread.h"
#include "api/routes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

/* ---- admit ---- */

static struct quota_limits limits_of(const struct auth_limits *l)
{
    return (struct quota_limits){l->requests_per_min, l->tokens_per_min, l->concurrency};
}

/* The output that each choice may have at most, from what the context leaves. */
static bool bound_output(struct inference *i, struct api_error *e)
{
    int64_t left = (int64_t)i->revision->context_tokens - i->prepare.n_ids;
    int64_t want = i->params.max_tokens;
    const char *field = i->params.kind == ENGINE_PROMPT_CHAT ? "messages" : "prompt";

    if (i->prepare.n_ids == 0)
        return error_set(e, ERROR_VALUE, field, "The prompt has no tokens.");
    if (left < 1)
        return error_set(e, ERROR_CONTEXT, field,
                         "The model's context has %u tokens; the prompt has %u.",
                         i->revision->context_tokens, i->prepare.n_ids);
    if (want == -1)
        want = i->revision->default_max_tokens != 0 ? i->revision->default_max_tokens : left;
    i->output_cap = int64_min(want, left);
    if (i->output_cap > INT32_MAX / i->params.n_choices) /* what a usage row counts */
        return error_set(e, ERROR_VALUE, "n", "Invalid value for 'n': %lld choices of %lld tokens.",
                         (long long)i->params.n_choices, (long long)i->output_cap);
    return true;
}

/* The prompt in every choice, which a few bytes of a request can make gigabytes. */
static bool begin_answer(struct inference *i, struct api_error *e)
{
    enum status s = inference_answer_init(i);

    if (s == ST_OK)
        return true;
    if (s == ST_TOO_LARGE)
        return error_set(e, ERROR_ANSWER, i->params.n_choices > 1 ? "n" : "prompt", "%s", "");
    *e = (struct api_error){.kind = ERROR_OVERLOADED, .retry_after_ms = API_RETRY_MS};
    return false;
}

static bool find_price(struct inference *i)
{
    enum status s =
        billing_price(i->request->loop->api->parts.billing, i->revision->model->id, &i->price);

    if (s == ST_OK)
        return true;
    log_error(i->request->name, "billing.price", "model=%s status=%s", i->revision->model->id,
              status_name(s));
    return inference_refuse_kind(i->request,
                                 s == ST_NOT_FOUND ? ERROR_NO_PRICE : ERROR_UNAVAILABLE);
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
        *e = (struct api_error){.kind = ERROR_UNAVAILABLE, .retry_after_ms = API_RETRY_MS};
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
        inference_refuse_kind(r, i->cancelled);
        return;
    }
    request_continue(r);
}

bool inference_admit(struct request *r)
{
    struct inference *i = r->state;
    const struct principal *who = &r->auth.principal;
    const struct api_config *cfg = &r->loop->api->cfg;
    struct api_error e = {0};

    if (!bound_output(i, &e) || !begin_answer(i, &e))
        return inference_refuse(r, &e);
    if (!find_price(i))
        return false;
    /* Just started, or its engine is away: nothing is reserved for a job that can't run. One that
     * sleeps is loaded for it. */
    if (!engine_link_takes(r->loop->link, i->revision))
        return inference_refuse_kind(r, ERROR_UNAVAILABLE);
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
        inference_refuse_kind(r, ERROR_UNAVAILABLE);
        return;
    }
    metrics_add(&r->loop->metrics, METRIC_ADMITTED, 1);
    request_meter_begin(&i->meter, metrics_of_model(&r->loop->metrics, i->revision->model),
                        r->begin_us);
    if (i->cancelled != ERROR_NONE)
        inference_close(i, &never_ran);
    else
        request_continue(r);
}

bool inference_journal(struct request *r)
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
    snprintf(a.model, sizeof a.model, "%s", i->revision->model->id);
    snprintf(a.endpoint, sizeof a.endpoint, "%s",
             r->route->endpoint == ENDPOINT_CHAT ? "chat.completions" : "completions");
    memcpy(a.client_request_id, i->client_request_id, sizeof a.client_request_id);
    i->write = (struct billing_write){.loop = &r->loop->loop.super, .on_done = on_journaled};
    billing_admit(r->loop->api->parts.billing, &i->write, &a);
    return false;
}
