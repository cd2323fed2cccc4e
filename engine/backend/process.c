/* Jobs in an engine process, over its Unix socket: checks that both sides have the same model, and
 * speaks the frames of wire.h. One link per loop; never blocks. */
#include "engine/backend/backend.h"

#include <stdlib.h>
#include <string.h>

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
    buf_dispose(&l->samples);
    job_table_dispose(&l->jobs);
    free(l);
}

static bool is_connected(const struct process_link *l)
{
    return l->state == LINK_READY && !l->is_broken;
}

/* One that sleeps serves: a job wakes it. */
static bool is_ready(const struct backend_link *super)
{
    const struct process_link *l = link_of(super);

    return is_connected(l) || l->is_asleep;
}

/* ---- what is sent ---- */

/* Lists of a request in the order of the frame. */
struct sorted_lists {
    struct logit_bias bias[LOGIT_BIAS_MAX];
    int32_t stop_ids[STOP_IDS_MAX];
};

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static int compare_biases(const void *a, const void *b)
{
    const struct logit_bias *x = a, *y = b;

    return compare_ids(&x->id, &y->id);
}

/* An id that is named twice stops as well as one. */
static uint32_t without_repeats(int32_t *ids, uint32_t n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++)
        if (kept == 0 || ids[i] != ids[kept - 1])
            ids[kept++] = ids[i];
    return kept;
}

static void sort_lists(const struct engine_submit *s, struct sorted_lists *lists,
                       struct wire_submit *out)
{
    const struct sampling *p = &s->sampling;

    if (p->n_bias > 0) {
        memcpy(lists->bias, p->bias, p->n_bias * sizeof p->bias[0]);
        qsort(lists->bias, p->n_bias, sizeof lists->bias[0], compare_biases);
    }
    if (s->n_stop_ids > 0) {
        memcpy(lists->stop_ids, s->stop_ids, s->n_stop_ids * sizeof s->stop_ids[0]);
        qsort(lists->stop_ids, s->n_stop_ids, sizeof lists->stop_ids[0], compare_ids);
    }
    out->sampling.bias = lists->bias;
    out->stop_ids = lists->stop_ids;
    out->n_stop_ids = without_repeats(lists->stop_ids, s->n_stop_ids);
}

static void fill_submit(const struct engine_submit *s, struct sorted_lists *lists,
                        struct wire_submit *out)
{
    *out = (struct wire_submit){.request = s->request,
                                .tenant = s->tenant,
                                .project = s->project,
                                .weight = s->weight != 0 ? s->weight : 1,
                                .priority = s->priority,
                                .queue_max_ms =
                                    (uint32_t)int64_min(s->queue_max_ms, WIRE_QUEUE_MS_MAX),
                                .max_tokens = s->max_tokens,
                                .n_choices = s->n_choices != 0 ? s->n_choices : 1,
                                .sampling = s->sampling,
                                .ignore_eos = s->ignore_eos,
                                .n_stops = (uint32_t)s->n_stops,
                                .n_prompt = s->n_prompt,
                                .prompt = s->prompt};
    memcpy(out->salt, s->cache_salt, sizeof out->salt);
    for (size_t i = 0; i < s->n_stops; i++)
        out->stops[i] = (struct text_span){.text = s->stops[i].text, .len = s->stops[i].len};
    sort_lists(s, lists, out);
}

/* What the engine's decoder refuses ends the connection and every job on it: so it isn't sent. */
static bool make_submit(const struct process_link *l, const struct engine_submit *s,
                        struct sorted_lists *lists, struct wire_submit *out)
{
    if (s->n_stops > WIRE_STOPS_MAX || s->n_stop_ids > STOP_IDS_MAX ||
        s->sampling.n_bias > LOGIT_BIAS_MAX || s->queue_max_ms < 0 ||
        s->n_prompt > l->target->context_tokens)
        return false;
    fill_submit(s, lists, out);
    return wire_submit_is_valid(out);
}

static enum status send_or_hold(struct process_link *l, struct process_job *j,
                                const struct wire_submit *v)
{
    if (!is_connected(l))
        return process_hold(l, j, v);
    wire_put_submit(&l->out, v);
    process_link_flush(l);
    return ST_OK;
}

static enum status submit(struct backend_link *super, const struct engine_submit *s,
                          struct engine_job **out)
{
    struct process_link *l = link_of(super);
    struct sorted_lists lists;
    struct wire_submit v;
    struct process_job *j;
    enum status status;

    if (!is_ready(super))
        return ST_UNAVAILABLE;
    if (!make_submit(l, s, &lists, &v))
        return ST_INVALID;
    j = calloc(1, sizeof *j);
    if (j == NULL)
        return ST_NO_MEMORY;
    *j = (struct process_job){.super.ops = &process_backend_ops,
                              .link = l,
                              .want_logprobs = s->sampling.want_logprobs,
                              .want_prompt_logprobs = s->sampling.want_prompt_logprobs,
                              .n_choices = v.n_choices,
                              .arg = s->arg,
                              .on_delta = s->on_delta,
                              .on_end = s->on_end};
    status = job_table_add(&l->jobs, j, &j->number);
    if (status != ST_OK) {
        free(j);
        return status;
    }
    v.job = j->number;
    status = send_or_hold(l, j, &v);
    if (status != ST_OK) {
        job_table_remove(&l->jobs, j->number);
        free(j);
        return status;
    }
    *out = &j->super;
    return ST_OK;
}

static void cancel(struct engine_job *super)
{
    struct process_job *j = CONTAINER_OF(super, struct process_job, super);

    if (j->is_cancelled)
        return;
    j->is_cancelled = true;
    if (j->is_held) {
        process_hold_cancel(j);
        return;
    }
    wire_put_cancel(&j->link->out, j->number);
    process_link_flush(j->link);
}

const struct backend_ops process_backend_ops = {.name = "process",
                                                .link_open = link_open,
                                                .link_close = link_close,
                                                .is_ready = is_ready,
                                                .submit = submit,
                                                .cancel = cancel,
                                                .claim = process_claim,
                                                .unclaim = process_unclaim,
                                                .release = process_release};
