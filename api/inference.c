#include "api/inference.h"

#include <stdlib.h>

#include "api/loop_thread.h"
#include "api/routes.h"

bool inference_refuse(struct request *r, struct api_error *e)
{
    request_fail(r, e);
    return false;
}

bool inference_refuse_kind(struct request *r, enum error_kind kind)
{
    struct api_error e = {.kind = kind};

    if (kind == ERROR_UNAVAILABLE || kind == ERROR_OVERLOADED || kind == ERROR_ANSWERS)
        e.retry_after_ms = API_RETRY_MS;
    return inference_refuse(r, &e);
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
    answers_hold(&r->loop->answers, &i->answer, 0);
    free(i->prepare.ids);
    params_dispose(&i->params);
    engine_revision_put(i->revision);
    free(i);
}

static const request_stage stages[] = {
    request_authenticate,
    inference_parse,
    inference_prepare,
    inference_admit,
    inference_journal,
    inference_run,
    NULL,
};

const struct handler inference_handler = {
    .stages = stages,
    .on_cancel = on_cancel,
    .dispose = on_dispose,
};
