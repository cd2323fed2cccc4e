#include "api/inference.h"

#include <stdlib.h>

#include "api/loop_thread.h"
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
                     u->output_tokens);
}

static void on_delta(void *arg, const struct engine_delta *d, const struct engine_usage *so_far)
{
    struct inference *i = arg;

    request_meter_tokens(&i->meter, d->choice, so_far, clock_mono_ns() / 1000);
    note_progress(i, so_far);
    if (d->len > 0)
        inference_answer_text(i, d->text, d->len);
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

/* top_p 0, or what is 0 as a float, leaves the most probable token alone: the greedy choice, which
 * is temperature 0. The engine takes no top_p of 0. */
static float temperature_of(const struct params *p)
{
    return (float)p->top_p > 0 ? (float)p->temperature : 0.0F;
}

static float top_p_of(const struct params *p)
{
    return (float)p->top_p > 0 ? (float)p->top_p : 1.0F;
}

static uint64_t seed_of(const struct params *p)
{
    uint64_t seed;

    if (p->has_seed)
        return (uint64_t)p->seed;
    random_bytes(&seed, sizeof seed);
    return seed;
}

static enum status submit(struct inference *i)
{
    struct request *r = i->request;
    struct engine_submit s = {
        .request = r->id,
        .model = i->model,
        .tenant = (uint64_t)r->auth.principal.tenant_id,
        .weight = r->auth.principal.weight,
        .prompt = i->prepare.ids,
        .n_prompt = i->prepare.n_ids,
        .max_tokens = (uint32_t)i->output_cap,
        .sampling = {.temperature = temperature_of(&i->params),
                     .top_p = top_p_of(&i->params),
                     .top_k = (int32_t)i->params.top_k,
                     .seed = seed_of(&i->params)},
        .stops = i->params.stops,
        .n_stops = i->params.n_stops,
        .ignore_eos = i->params.ignore_eos,
        .arg = i,
        .on_delta = on_delta,
        .on_end = on_end,
    };

    return engine_submit(r->loop->link, &s, &i->job);
}

bool inference_run(struct request *r)
{
    struct inference *i = r->state;
    enum status s;

    inference_answer_start(i);
    i->progress_ms = now_ms(i);
    i->deadline = (struct loop_timer){.on_timer = on_deadline, .arg = i};
    loop_timer_start(&r->loop->loop.super, &i->deadline,
                     r->loop->api->cfg.request_max_ms - (now_ms(i) - r->begin_ms));
    s = submit(i);
    free(i->prepare.ids);
    i->prepare.ids = NULL;
    if (s != ST_OK) {
        struct engine_end end = {.status = s};

        inference_close(i, &end);
        return false;
    }
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
    if (i->end.status == ST_OK)
        return ERROR_NONE;
    if (i->end.status == ST_CANCELLED && i->cancelled != ERROR_NONE)
        return i->cancelled;
    return error_from_status(i->end.status);
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
    if (e.kind == ERROR_UNAVAILABLE || e.kind == ERROR_OVERLOADED)
        e.retry_after_ms = ENGINE_RETRY_MS;
    inference_answer_end(i, e.kind == ERROR_NONE ? NULL : &e);
    request_end(r);
}

static void count_end(struct inference *i)
{
    struct metrics *m = &i->request->loop->metrics;
    const struct engine_end *end = &i->end;

    request_meter_end(&i->meter, end, i->ran, clock_mono_ns() / 1000);
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
    quota_settle(r->loop->quota, &i->ask, i->ran ? used : -1);
    count_end(i);
    write_final(i);
}
