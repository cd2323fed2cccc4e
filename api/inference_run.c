#include "api/inference.h"

#include <stdlib.h>

#include "api/loop_thread.h"
#include "api/params_model.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

/* The rhythm of progress records: what a crash of the gateway may leave unbilled at most. */
#define PROGRESS_TOKENS 32
#define PROGRESS_MS     1000
/* The engine process is restarted within about as long. */
#define ENGINE_RETRY_MS 2000

static int64_t now_ms(const struct inference *i)
{
    return loop_now_ms(&i->request->loop->loop.super);
}

/* ---- run ---- */

static void note_progress(struct inference *i, const struct engine_usage *u)
{
    int64_t now = now_ms(i);

    if (u->output_tokens == 0)
        return;
    if (i->first_token_ns == 0)
        i->first_token_ns = clock_mono_ns();
    if (u->output_tokens - i->progress_tokens < PROGRESS_TOKENS &&
        now - i->progress_ms < PROGRESS_MS)
        return;
    i->progress_tokens = u->output_tokens;
    i->progress_ms = now;
    billing_progress(i->request->loop->api->parts.billing, &i->request->id, u->prompt_tokens,
                     u->cached_tokens, u->output_tokens);
}

static void on_delta(void *arg, const struct engine_delta *d, const struct engine_usage *so_far)
{
    struct inference *i = arg;

    request_meter_tokens(&i->meter, d->choice, so_far, d->read_us);
    note_progress(i, so_far);
    inference_answer_delta(i, d);
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct inference *i = arg;

    i->job = NULL;
    inference_close(i, end);
}

static void on_deadline(void *arg)
{
    struct inference *i = arg;

    request_cancel(i->request, ERROR_TIMEOUT);
}

_Static_assert(KEY_PRIORITY_LOW == ENGINE_PRIORITIES - 1, "auth's classes are the engine's");
_Static_assert(CACHE_SALT_BYTES == ENGINE_SALT_BYTES, "auth's salt is the engine's");

/* A request may go behind the others of its key, never before them. */
static uint32_t priority_of(const struct inference *i)
{
    return i->params.is_flex ? KEY_PRIORITY_LOW : i->request->auth.principal.priority;
}

static enum status submit(struct inference *i)
{
    struct request *r = i->request;
    const struct principal *who = &r->auth.principal;
    struct engine_submit s = {
        .request = r->id,
        .revision = i->revision,
        .tenant = (uint64_t)who->tenant_id,
        .project = (uint64_t)who->project_id,
        .weight = who->weight,
        .priority = priority_of(i),
        .queue_max_ms = r->loop->api->cfg.queue_max_ms,
        .prompt = i->prepare.ids,
        .n_prompt = i->prepare.n_ids,
        .max_tokens = (uint32_t)i->output_cap,
        .n_choices = (uint32_t)i->params.n_choices,
        .stops = i->params.stops,
        .n_stops = i->params.n_stops,
        .stop_ids = i->params.stop_ids,
        .n_stop_ids = i->params.n_stop_ids,
        .ignore_eos = i->params.ignore_eos,
        .arg = i,
        .on_delta = on_delta,
        .on_end = on_end,
    };

    params_sampling(&i->params, &s.sampling);
    auth_cache_salt(r->loop->api->parts.auth, who->tenant_id, s.cache_salt);
    return engine_submit(r->loop->link, &s, &i->job);
}

static void start_deadline(struct inference *i)
{
    struct request *r = i->request;

    i->deadline = (struct loop_timer){.on_timer = on_deadline, .arg = i};
    loop_timer_start(&r->loop->loop.super, &i->deadline,
                     r->loop->api->cfg.request_max_ms - (now_ms(i) - r->begin_ms));
}

/* It has not reached the engine. */
static bool close_unrun(struct inference *i, enum status s)
{
    struct engine_end end = {.status = s};

    inference_close(i, &end);
    return false;
}

bool inference_run(struct request *r)
{
    struct inference *i = r->state;
    enum status s;

    inference_answer_start(i);
    i->progress_ms = now_ms(i);
    start_deadline(i);
    s = submit(i);
    free(i->prepare.ids);
    i->prepare.ids = NULL;
    if (s != ST_OK)
        return close_unrun(i, s);
    i->ran = true;
    return false;
}

/* ---- settle ---- */

static enum billing_outcome outcome_of(enum status s)
{
    if (s == ST_OK)
        return OUTCOME_COMPLETED;
    return s == ST_CANCELLED ? OUTCOME_CANCELLED : OUTCOME_FAILED;
}

/* Why it did not go well, for the client; ERROR_NONE: it did. */
static enum error_kind error_of(const struct inference *i)
{
    if (i->write.status != ST_OK)
        return ERROR_UNAVAILABLE; /* unbilled output is not given away */
    /* It may have ended well meanwhile, but is not whole. */
    if (i->answer.state != ANSWER_WHOLE)
        return ERROR_ANSWERS;
    if (i->cancelled == ERROR_ANSWER)
        return ERROR_ANSWER;
    if (i->end.status == ST_OK)
        return ERROR_NONE;
    if (i->end.status == ST_CANCELLED && i->cancelled != ERROR_NONE)
        return i->cancelled;
    if (i->end.status == ST_TIMEOUT) /* waited too long for its turn: a later try may do better */
        return ERROR_OVERLOADED;
    return error_from_status(i->end.status);
}

static int64_t retry_after_ms(const struct inference *i, enum error_kind kind)
{
    if (kind == ERROR_ANSWERS)
        return API_RETRY_MS;
    if (kind != ERROR_UNAVAILABLE && kind != ERROR_OVERLOADED && kind != ERROR_LOADING)
        return 0;
    return i->end.retry_after_ms != 0 ? (int64_t)i->end.retry_after_ms : ENGINE_RETRY_MS;
}

/* The final record is durable (or can't be): now the client may have the end. */
static void on_final(struct billing_write *w)
{
    struct inference *i = CONTAINER_OF(w, struct inference, write);
    struct request *r = i->request;
    struct api_error e = {.kind = error_of(i)};

    if (w->status != ST_OK) {
        log_error(r->name, "journal.final", "status=%s", status_name(w->status));
        metrics_add(&r->loop->metrics, METRIC_JOURNAL_FAILED, 1);
    }
    e.retry_after_ms = retry_after_ms(i, e.kind);
    inference_answer_end(i, e.kind == ERROR_NONE ? NULL : &e);
    request_end(r);
}

static void count_end(struct inference *i)
{
    struct metrics *m = &i->request->loop->metrics;
    const struct engine_end *end = &i->end;

    request_meter_end(&i->meter, end, i->ran, clock_mono_us());
    if (end->status != ST_OK && end->status != ST_CANCELLED)
        metrics_add(m, METRIC_FAILED, 1);
    metrics_add(m, METRIC_BILLED_PROMPT, end->usage.prompt_tokens);
    metrics_add(m, METRIC_BILLED_CACHED, end->usage.cached_tokens);
    metrics_add(m, METRIC_BILLED_OUTPUT, end->usage.output_tokens);
}

static void write_final(struct inference *i)
{
    struct request *r = i->request;
    const struct engine_end *end = &i->end;
    struct billing_final f = {
        .id = r->id,
        .admitted_at_us = i->admitted_at_us,
        .ended_at_us = clock_wall_us(),
        .outcome = outcome_of(end->status),
        .prompt_tokens = end->usage.prompt_tokens,
        .cached_tokens = end->usage.cached_tokens,
        .output_tokens = end->usage.output_tokens,
        .ttft_us = i->first_token_ns != 0 ? (i->first_token_ns - i->admitted_ns) / 1000 : -1,
    };

    if (end->status == ST_OK)
        snprintf(f.finish_reason, sizeof f.finish_reason, "%s", shape_finish_name(end->finish));
    i->write = (struct billing_write){.loop = &r->loop->loop.super, .on_done = on_final};
    billing_finish(r->loop->api->parts.billing, &i->write, &f);
}

/* What the engine turned away, or wasn't there for, is as if it had never come: the limits get all
 * of it back. */
static bool was_turned_away(const struct engine_end *end)
{
    return end->status == ST_OVERLOADED || end->status == ST_TIMEOUT || end->status == ST_ASLEEP;
}

void inference_close(struct inference *i, const struct engine_end *end)
{
    struct request *r = i->request;
    int64_t used = (int64_t)end->usage.prompt_tokens + end->usage.output_tokens;

    loop_timer_stop(&r->loop->loop.super, &i->deadline);
    i->end = *end;
    r->log_prompt_tokens = end->usage.prompt_tokens;
    r->log_output_tokens = end->usage.output_tokens;
    if (end->status != ST_OK && end->status != ST_CANCELLED)
        log_warn(r->name, "engine.job", "status=%s", status_name(end->status));
    quota_settle(r->loop->quota, &i->ask, i->ran && !was_turned_away(end) ? used : -1);
    count_end(i);
    write_final(i);
}
