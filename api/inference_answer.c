#include "api/inference.h"

#include <stdio.h>

#include "api/loop_thread.h"
#include "api/respond.h"
#include "api/routes.h"
#include "base/log.h"
#include "base/size.h"

/* ---- what it holds ---- */

static void note_held(struct inference *i)
{
    size_t bytes = i->choices.held + i->body_bytes;

    if (i->stream.request != NULL)
        bytes += event_queue_held(&i->stream.queue);
    answers_hold(&i->request->loop->answers, &i->answer, bytes);
}

/* Nothing of it can be taken back: it is on its way. */
static void cut_answer(struct inference *i)
{
    struct request *r = i->request;

    i->answer.state = ANSWER_CUT;
    if (r->http != NULL)
        connection_shut(r->conn, "an answer is not read, and its memory is needed");
}

static void end_answer(struct inference *i)
{
    struct request *r = i->request;

    log_warn(r->name, "answer.end", "bytes=%zu: too much waits for clients", i->answer.held);
    metrics_add(&r->loop->metrics, METRIC_ANSWERS_ENDED, 1);
    i->answer.state = ANSWER_ENDED;
    request_cancel(r, ERROR_ANSWERS);
    choices_drop(&i->choices);
    if (i->stream.request != NULL)
        event_queue_drop(&i->stream.queue);
    note_held(i);
}

void inference_make_room(struct api_loop *l)
{
    struct answer *a = answers_excess(&l->answers);
    struct inference *i;

    if (a == NULL)
        return;
    i = CONTAINER_OF(a, struct inference, answer);
    if (a->state == ANSWER_WHOLE && !i->request->work_done)
        end_answer(i);
    else
        cut_answer(i);
}

/* ---- the beginning ---- */

static void on_sent(void *arg)
{
    note_held(arg);
}

static void on_stream_start(void *arg)
{
    struct inference *i = arg;

    if (i->shape.endpoint != ENDPOINT_CHAT)
        return;
    for (uint32_t k = 0; k < i->choices.config.n; k++) {
        shape_first(sse_begin(&i->stream), &i->shape, k);
        sse_commit(&i->stream);
    }
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
    char hex[ID_HEX_BYTES];

    i->shape.endpoint = (enum endpoint)r->route->endpoint;
    id_to_hex(&r->id, hex);
    snprintf(i->shape.id, sizeof i->shape.id, "%s-%s",
             i->shape.endpoint == ENDPOINT_CHAT ? "chatcmpl" : "cmpl", hex);
    i->shape.created_s = r->begin_wall_us / 1000000;
    i->shape.model = i->revision->model->id;
    i->shape.include_usage = i->params.include_usage;
    i->shape.service_tier = i->params.service_tier;
}

/* Not before it has said something: one that is loaded for this request is not known earlier. */
static void name_engine(struct inference *i)
{
    struct engine_stats stats;

    if (i->shape.fingerprint[0] != '\0')
        return;
    engine_stats_of(i->request->loop->api->parts.engine, i->revision->model, &stats);
    shape_fingerprint(&stats, i->revision->hex, i->shape.fingerprint);
}

enum status inference_answer_init(struct inference *i)
{
    const struct params *p = &i->params;
    const struct choices_config cfg = {
        .endpoint = (enum endpoint)i->request->route->endpoint,
        .n = (uint32_t)p->n_choices,
        .want_logprobs = p->logprobs,
        .is_streamed = p->stream,
        .source = {.revision = i->revision, .bytes = engine_token_bytes},
        .prompt = p->echo ? i->prepare.ids : NULL,
        .n_prompt = i->prepare.n_ids,
        .text = p->kind == ENGINE_PROMPT_TEXT ? p->text : NULL,
        .text_len = p->text_len,
    };

    enum status s = choices_init(&i->choices, &cfg);

    note_held(i);
    return s;
}

/* A client may lag by some steps, and a step brings an event of every choice; the prompt's come all
 * at once. */
static size_t pending_max(const struct params *p)
{
    return SSE_PENDING_MAX_BYTES * (size_t)(1 + p->n_choices / 8) +
           (p->echo ? ANSWER_BYTES_MAX : 0);
}

void inference_answer_start(struct inference *i)
{
    init_shape(i);
    if (!i->params.stream)
        return;
    sse_init(&i->stream, i->request, i->request->loop->api->cfg.ping_ms, pending_max(&i->params));
    i->stream.on_start = on_stream_start;
    i->stream.on_stuck = on_stream_stuck;
    i->stream.on_sent = on_sent;
    i->stream.arg = i;
}

/* ---- streamed ---- */

/* The prompt, before anything else of any choice: by then its log-probabilities are there. */
static void send_echo(struct inference *i)
{
    const struct choices *c = &i->choices;

    if (!i->params.echo || i->is_echo_sent)
        return;
    i->is_echo_sent = true;
    for (uint32_t k = 0; k < c->config.n; k++) {
        const struct shape_choice part = {.index = k,
                                          .text = c->echo.data,
                                          .len = c->echo.len,
                                          .logprobs = choices_prompt_logprobs(c)};

        shape_text(sse_begin(&i->stream), &i->shape, &part);
        sse_commit(&i->stream);
    }
}

static void send_finish(struct inference *i, uint32_t index, enum engine_finish finish)
{
    i->choices.list[index].is_closed = true;
    shape_finish(sse_begin(&i->stream), &i->shape, index, finish);
    sse_commit(&i->stream);
}

/* The last choice's finish waits for the end, and so for the final record to be durable. */
static void send_delta(struct inference *i, const struct engine_delta *d)
{
    struct choice *one = &i->choices.list[d->choice];
    const struct shape_choice part = {.index = d->choice,
                                      .text = one->text.data,
                                      .len = one->text.len,
                                      .logprobs = choice_logprobs(&i->choices, one)};
    const bool is_last = i->choices.n_ended == i->choices.config.n;

    if (d->len > 0 || (i->params.logprobs && d->n_tokens > 0)) {
        send_echo(i);
        shape_text(sse_begin(&i->stream), &i->shape, &part);
        sse_commit(&i->stream);
        choices_clear(&i->choices, one);
    }
    if (one->finish != ENGINE_FINISH_NONE && !one->is_closed && !is_last) {
        send_echo(i);
        send_finish(i, d->choice, one->finish);
    }
    sse_flush(&i->stream);
}

void inference_answer_delta(struct inference *i, const struct engine_delta *d)
{
    enum status s;

    if (d->choice >= i->choices.config.n)
        return; /* the engine's mistake may spoil this answer, not the gateway */
    name_engine(i);
    s = choices_add(&i->choices, d);
    if (s != ST_OK)
        request_cancel(i->request, s == ST_TOO_LARGE ? ERROR_ANSWER : ERROR_OVERLOADED);
    else if (i->params.stream && !d->is_prompt)
        send_delta(i, d);
    note_held(i);
    inference_make_room(i->request->loop);
}

/* Choices whose end was not told one by one share that of the job. */
static enum engine_finish finish_of(const struct inference *i, uint32_t index)
{
    enum engine_finish own = i->choices.list[index].finish;

    return own != ENGINE_FINISH_NONE ? own : i->end.finish;
}

static void end_stream(struct inference *i)
{
    struct sse *s = &i->stream;

    send_echo(i);
    for (uint32_t k = 0; k < i->choices.config.n; k++)
        if (!i->choices.list[k].is_closed)
            send_finish(i, k, finish_of(i, k));
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

/* ---- whole ---- */

static void answer_whole(struct inference *i)
{
    const struct choices *c = &i->choices;
    struct buf body;

    buf_init(&body);
    shape_answer_begin(&body, &i->shape);
    for (uint32_t k = 0; k < c->config.n; k++) {
        const struct choice *one = &c->list[k];
        const struct shape_choice whole = {.index = k,
                                           .echo = c->echo.data,
                                           .echo_len = c->echo.len,
                                           .text = one->text.data,
                                           .len = one->text.len,
                                           .prompt_logprobs = choices_prompt_logprobs(c),
                                           .logprobs = choice_logprobs(c, one),
                                           .finish = finish_of(i, k)};

        shape_answer_choice(&body, &i->shape, &whole);
    }
    shape_answer_end(&body, &i->shape, &i->end.usage);
    choices_drop(&i->choices);
    respond_json(i->request, 200, &body);
    i->body_bytes = i->request->http != NULL ? body.len : 0; /* H2O has a copy */
    buf_dispose(&body);
}

void inference_answer_end(struct inference *i, const struct api_error *e)
{
    struct request *r = i->request;

    if (r->gone || r->http == NULL || i->stream.broken)
        return;
    name_engine(i);
    if (e != NULL && i->stream.started)
        fail_stream(i, e);
    else if (e != NULL)
        respond_error(r, e);
    else if (i->params.stream)
        end_stream(i);
    else
        answer_whole(i);
    note_held(i);
}
