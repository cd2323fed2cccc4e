/* Jobs in an engine process, over its Unix socket: checks that both sides have the same model, and
 * speaks the frames of wire.h. One link per loop; never blocks. */
#include "engine/backend/backend.h"

#include <stdlib.h>

#include "base/size.h"
#include "engine/backend/process_state.h"
#include "engine/wire/wire.h"

void process_job_end(struct process_job *j, const struct engine_end *end)
{
    job_table_remove(&j->link->jobs, j->number);
    j->on_end(j->arg, end);
    free(j);
}

static enum status link_open(const struct backend_target *t, struct loop *loop,
                             struct backend_link **out)
{
    struct process_link *l = calloc(1, sizeof *l);

    if (l == NULL)
        return ST_NO_MEMORY;
    l->super.ops = &process_backend_ops;
    l->target = t;
    l->loop = loop;
    job_table_init(&l->jobs);
    process_link_start(l);
    *out = &l->super;
    return ST_OK;
}

static struct process_link *link_of(const struct backend_link *l)
{
    return CONTAINER_OF(l, struct process_link, super);
}

static void link_close(struct backend_link *super)
{
    struct process_link *l = link_of(super);

    process_link_stop(l);
    buf_dispose(&l->in);
    buf_dispose(&l->out);
    job_table_dispose(&l->jobs);
    free(l);
}

static bool is_ready(const struct backend_link *super)
{
    const struct process_link *l = link_of(super);

    return l->state == LINK_READY && !l->is_broken;
}

static void put_submit(struct process_link *l, const struct process_job *j,
                       const struct engine_submit *s)
{
    struct wire_submit v = {.job = j->number,
                            .request = s->request,
                            .tenant = s->tenant,
                            .weight = s->weight != 0 ? s->weight : 1,
                            .max_tokens = s->max_tokens,
                            .sampling = s->sampling,
                            .ignore_eos = s->ignore_eos,
                            .n_stops = (uint32_t)s->n_stops,
                            .n_prompt = s->n_prompt,
                            .prompt = s->prompt};

    for (size_t i = 0; i < s->n_stops; i++)
        v.stops[i] = (struct text_span){.text = s->stops[i].text, .len = s->stops[i].len};
    wire_put_submit(&l->out, &v);
}

/* What the engine's decoder refuses ends the connection and every job on it: so it isn't sent.
 * Compared so that NaN fails. */
static bool is_sampling_sendable(const struct sampling *s)
{
    return s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1 &&
           s->top_k >= 0;
}

static bool is_sendable(const struct process_link *l, const struct engine_submit *s)
{
    return is_sampling_sendable(&s->sampling) && s->n_stops <= WIRE_STOPS_MAX && s->n_prompt > 0 &&
           s->n_prompt <= l->target->context_tokens &&
           s->n_prompt < (WIRE_FRAME_BYTES_MAX - 4096) / sizeof s->prompt[0];
}

static enum status submit(struct backend_link *super, const struct engine_submit *s,
                          struct engine_job **out)
{
    struct process_link *l = link_of(super);
    struct process_job *j;
    enum status status;

    if (!is_ready(super))
        return ST_UNAVAILABLE;
    if (!is_sendable(l, s))
        return ST_INVALID;
    j = calloc(1, sizeof *j);
    if (j == NULL)
        return ST_NO_MEMORY;
    *j = (struct process_job){.super.ops = &process_backend_ops,
                              .link = l,
                              .arg = s->arg,
                              .on_delta = s->on_delta,
                              .on_end = s->on_end};
    status = job_table_add(&l->jobs, j, &j->number);
    if (status != ST_OK) {
        free(j);
        return status;
    }
    put_submit(l, j, s);
    process_link_flush(l);
    *out = &j->super;
    return ST_OK;
}

static void cancel(struct engine_job *super)
{
    struct process_job *j = CONTAINER_OF(super, struct process_job, super);

    if (j->is_cancelled)
        return;
    j->is_cancelled = true;
    wire_put_cancel(&j->link->out, j->number);
    process_link_flush(j->link);
}

const struct backend_ops process_backend_ops = {.name = "process",
                                                .link_open = link_open,
                                                .link_close = link_close,
                                                .is_ready = is_ready,
                                                .submit = submit,
                                                .cancel = cancel};
