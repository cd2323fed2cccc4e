#include "api/inference.h"

#include <stdio.h>

#include "api/loop_thread.h"
#include "api/respond.h"
#include "api/routes.h"

/* Text of one answer that is collected: the context bounds it long before. */
#define TEXT_MAX_BYTES ((size_t)64 << 20)

static void on_stream_start(void *arg)
{
    struct inference *i = arg;

    if (!shape_has_first(&i->shape))
        return;
    shape_first(sse_begin(&i->stream), &i->shape);
    sse_commit(&i->stream);
}

static void on_stream_stuck(void *arg)
{
    struct inference *i = arg;

    i->request->http_status = error_info(ERROR_GONE)->http;
    request_cancel(i->request, ERROR_GONE);
}

static void init_shape(struct inference *i)
{
    struct request *r = i->request;
    struct engine_stats stats;
    char hex[ID_HEX_BYTES];

    i->shape.endpoint = (enum endpoint)r->route->endpoint;
    id_to_hex(&r->id, hex);
    snprintf(i->shape.id, sizeof i->shape.id, "%s-%s",
             i->shape.endpoint == ENDPOINT_CHAT ? "chatcmpl" : "cmpl", hex);
    i->shape.created_s = r->begin_wall_us / 1000000;
    i->shape.model = i->model->id;
    i->shape.include_usage = i->params.include_usage;
    engine_stats(r->loop->api->parts.engine, &stats);
    shape_fingerprint(&stats, i->model->revision, i->shape.fingerprint);
}

void inference_answer_start(struct inference *i)
{
    init_shape(i);
    i->text.limit = TEXT_MAX_BYTES;
    if (!i->params.stream)
        return;
    sse_init(&i->stream, i->request, i->request->loop->api->cfg.ping_ms);
    i->stream.on_start = on_stream_start;
    i->stream.on_stuck = on_stream_stuck;
    i->stream.arg = i;
}

void inference_answer_text(struct inference *i, const char *text, size_t len)
{
    if (!i->params.stream) {
        buf_append(&i->text, text, len);
        return;
    }
    shape_text(sse_begin(&i->stream), &i->shape, text, len);
    sse_commit(&i->stream);
    sse_flush(&i->stream);
}

static void end_stream(struct inference *i)
{
    struct sse *s = &i->stream;

    shape_finish(sse_begin(s), &i->shape, i->end.finish);
    sse_commit(s);
    if (i->shape.include_usage) {
        shape_usage(sse_begin(s), &i->shape, &i->end.usage);
        sse_commit(s);
    }
    buf_puts(sse_begin(s), "[DONE]");
    sse_commit(s);
    sse_end(s);
}

/* The 200 is out: the error is the stream's last event, and no [DONE] follows. */
static void fail_stream(struct inference *i, const struct api_error *e)
{
    struct sse *s = &i->stream;

    i->request->http_status = error_info(e->kind)->http; /* for the log and the metrics */
    error_put(sse_begin(s), e);
    sse_commit(s);
    sse_end(s);
}

static void answer_whole(struct inference *i)
{
    struct buf body;

    buf_init(&body);
    shape_answer(&body, &i->shape, buf_cstr(&i->text), i->text.len, i->end.finish, &i->end.usage);
    body.failed |= i->text.failed;
    respond_json(i->request, 200, &body);
    buf_dispose(&body);
}

void inference_answer_end(struct inference *i, const struct api_error *e)
{
    struct request *r = i->request;

    if (r->gone || r->http == NULL || i->stream.broken)
        return;
    if (e != NULL && i->stream.started)
        fail_stream(i, e);
    else if (e != NULL)
        respond_error(r, e);
    else if (i->params.stream)
        end_stream(i);
    else
        answer_whole(i);
}
