#include "engine/core/jobs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/text/detok.h"

struct job {
    struct sequence sequence;
    struct conn *conn;       /* NULL: has gone */
    struct job *prev, *next; /* of the connection */
    uint64_t id;
    struct id request;
    bool ignore_eos;
    struct detok *detok;
};

_Static_assert(WIRE_STOPS_MAX == STOP_STRINGS_MAX, "the wire carries what the detokenizer takes");
_Static_assert(WIRE_STOP_BYTES_MAX == STOP_STRING_BYTES_MAX, "as above");

static struct job *job_of(struct sequence *s)
{
    return CONTAINER_OF(s, struct job, sequence);
}

void jobs_init(struct jobs *j, const struct tokenizer *t)
{
    memset(j, 0, sizeof *j);
    j->tokenizer = t;
}

void jobs_dispose(struct jobs *j)
{
    assert(j->n == 0);
    buf_dispose(&j->ids);
    buf_dispose(&j->text);
}

static void link_job(struct conn *c, struct job *job)
{
    job->conn = c;
    job->prev = NULL;
    job->next = c->jobs;
    if (c->jobs != NULL)
        c->jobs->prev = job;
    c->jobs = job;
}

static void unlink_job(struct job *job)
{
    if (job->conn == NULL)
        return;
    if (job->prev != NULL)
        job->prev->next = job->next;
    else
        job->conn->jobs = job->next;
    if (job->next != NULL)
        job->next->prev = job->prev;
    job->conn = NULL;
}

static struct job *find(const struct conn *c, uint64_t id)
{
    struct job *job = c->jobs;

    while (job != NULL && job->id != id)
        job = job->next;
    return job;
}

/* ---- what the scheduler says ---- */

/* The prompt counts once its prefill is complete; a sequence whose logits were not finite, or that
 * failed before its first token, costs nothing. */
static void fill_counts(const struct sequence *s, enum status status, struct wire_final *out)
{
    bool is_free = s->not_finite || (status == ST_INTERNAL && sequence_n_output(s) == 0);

    if (is_free)
        return;
    out->prompt_tokens = s->prefilled ? s->n_prompt : 0;
    out->output_tokens = sequence_n_output(s);
}

static uint32_t interval_us(int64_t from, int64_t to)
{
    int64_t us = to - from;

    return us < 0 ? 0 : us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static void fill_times(const struct sequence *s, struct wire_final *out)
{
    int64_t admitted = s->admitted_us != 0 ? s->admitted_us : s->ended_us;
    int64_t prefilled = s->prefilled ? s->prefilled_us : s->ended_us;

    out->queue_us = interval_us(s->submitted_us, admitted);
    out->prefill_us = interval_us(admitted, prefilled);
    out->decode_us = interval_us(prefilled, s->ended_us);
}

static void put_entry(struct jobs *j, const struct job *job)
{
    const struct sequence *s = &job->sequence;
    struct wire_step_entry e = {.job = job->id,
                                .prompt_tokens = s->n_prompt,
                                .output_tokens = sequence_n_output(s),
                                .text = j->text.data,
                                .text_len = (uint32_t)j->text.len};

    if (j->text.failed)
        job->conn->broken = true;
    else
        conn_add_entry(job->conn, j->step, &e);
}

static bool on_token(void *arg, struct sequence *s, const struct token_sample *t, bool last)
{
    struct job *job = job_of(s);
    struct jobs *j = arg;
    int32_t id = t->id;
    bool is_end = !job->ignore_eos && tokenizer_is_eog(j->tokenizer, id), is_stop = false;

    buf_clear(&j->text);
    if (!is_end)
        is_stop = detok_feed(job->detok, id, &j->text);
    if (!is_stop && (is_end || last))
        detok_flush(job->detok, &j->text);
    put_entry(j, job);
    return is_end || is_stop;
}

static void on_end(void *arg, struct sequence *s, enum status status, enum engine_finish finish)
{
    struct job *job = job_of(s);
    struct wire_final out = {.job = job->id, .status = (uint16_t)status, .finish = (uint8_t)finish};

    (void)arg;
    if (job->conn == NULL)
        return;
    fill_counts(s, status, &out);
    fill_times(s, &out);
    wire_put_final(&job->conn->finals, &out);
    /* Its id is free again, and nothing more may be said about it. */
    unlink_job(job);
}

static void on_release(void *arg, struct sequence *s)
{
    struct job *job = job_of(s);
    struct jobs *j = arg;

    unlink_job(job);
    detok_free(job->detok);
    free(job);
    j->n--;
}

const struct scheduler_events jobs_events = {
    .on_token = on_token, .on_end = on_end, .on_release = on_release};

/* ---- what the gateway says ---- */

static bool ids_are_known(const struct jobs *j, const struct wire_submit *v)
{
    uint32_t n_vocab = tokenizer_n_vocab(j->tokenizer);

    for (uint32_t i = 0; i < v->n_prompt; i++)
        if ((uint32_t)v->prompt[i] >= n_vocab)
            return false;
    return true;
}

static enum status start(struct jobs *j, struct conn *c, const struct wire_submit *v,
                         int64_t now_us)
{
    struct job *job = calloc(1, sizeof *job);
    enum status status = ST_NO_MEMORY;

    if (job == NULL)
        return ST_NO_MEMORY;
    job->sequence.tenant = v->tenant;
    job->sequence.max_tokens = v->max_tokens;
    job->sequence.sampling = v->sampling;
    job->sequence.held = c->starved;
    job->id = v->job;
    job->request = v->request;
    job->ignore_eos = v->ignore_eos;
    status = detok_new(j->tokenizer, v->stops, v->n_stops, &job->detok);
    if (status == ST_OK) {
        detok_follow(job->detok, v->prompt[v->n_prompt - 1]);
        status = scheduler_submit(j->scheduler, &job->sequence, v->prompt, v->n_prompt, now_us);
    }
    if (status != ST_OK) {
        detok_free(job->detok);
        free(job);
        return status;
    }
    link_job(c, job);
    j->n++;
    return ST_OK;
}

/* What a gateway may be told about a job that never began. */
static enum status refusal(enum status s)
{
    return s == ST_TOO_LONG || s == ST_OVERLOADED || s == ST_UNAVAILABLE || s == ST_INVALID
               ? s
               : ST_INTERNAL;
}

static void refuse(struct conn *c, const struct wire_submit *v, enum status s)
{
    struct wire_final out = {.job = v->job, .status = (uint16_t)refusal(s)};
    char request[ID_HEX_BYTES];

    id_to_hex(&v->request, request);
    log_info(request, "engine.refuse", "status=%s prompt_tokens=%u max_tokens=%u", status_name(s),
             v->n_prompt, v->max_tokens);
    wire_put_final(&c->finals, &out);
}

enum status jobs_submit(struct jobs *j, struct conn *c, const struct wire_frame *f, int64_t now_us)
{
    struct wire_submit v;
    enum status status = wire_get_submit(f, &j->ids, &v);

    if (status != ST_OK)
        return status;
    if (find(c, v.job) != NULL)
        return ST_CORRUPT;
    if (j->draining)
        status = ST_UNAVAILABLE;
    else if (!ids_are_known(j, &v))
        status = ST_INVALID;
    else
        status = start(j, c, &v, now_us);
    if (status != ST_OK)
        refuse(c, &v, status);
    return ST_OK;
}

enum status jobs_cancel(struct jobs *j, struct conn *c, const struct wire_frame *f, int64_t now_us)
{
    struct job *job;
    uint64_t id;

    if (wire_get_cancel(f, &id) != ST_OK)
        return ST_CORRUPT;
    /* Unknown is no fault: the job's end and its cancel may have crossed. */
    job = find(c, id);
    if (job != NULL)
        scheduler_cancel(j->scheduler, &job->sequence, ST_CANCELLED, now_us);
    return ST_OK;
}

void jobs_drop(struct jobs *j, struct conn *c, int64_t now_us)
{
    while (c->jobs != NULL) {
        struct job *job = c->jobs;

        unlink_job(job);
        scheduler_cancel(j->scheduler, &job->sequence, ST_CANCELLED, now_us);
    }
}

void jobs_evict(struct jobs *j, struct conn *c, bool waiting_only, int64_t now_us)
{
    struct job *next;

    for (struct job *job = c->jobs; job != NULL; job = next) {
        next = job->next;
        if (!waiting_only || job->sequence.state == SEQUENCE_WAITING)
            scheduler_cancel(j->scheduler, &job->sequence, ST_UNAVAILABLE, now_us);
    }
}

void jobs_hold(struct conn *c)
{
    for (struct job *job = c->jobs; job != NULL; job = job->next)
        job->sequence.held = c->starved;
}
