#include "engine/core/jobs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/core/job.h"
#include "engine/core/jobs_parts.h"

static enum status find_model_ends(struct jobs *j)
{
    uint32_t n_vocab = tokenizer_n_vocab(j->tokenizer), n = 0;

    for (uint32_t id = 0; id < n_vocab; id++)
        n += tokenizer_is_eog(j->tokenizer, (int32_t)id);
    j->model_ends.ids = calloc((size_t)n + 1, sizeof j->model_ends.ids[0]);
    if (j->model_ends.ids == NULL)
        return ST_NO_MEMORY;
    j->model_ends.cap = (size_t)n + 1;
    for (uint32_t id = 0; id < n_vocab; id++)
        if (tokenizer_is_eog(j->tokenizer, (int32_t)id))
            j->model_ends.ids[j->model_ends.n++] = (int32_t)id;
    return ST_OK;
}

enum status jobs_init(struct jobs *j, const struct tokenizer *t, const struct cache_domain *cache)
{
    enum status s;

    memset(j, 0, sizeof *j);
    j->tokenizer = t;
    j->cache = *cache;
    s = orphans_init(&j->orphans, ORPHANS_MAX);
    return s == ST_OK ? find_model_ends(j) : s;
}

void jobs_dispose(struct jobs *j)
{
    assert(j->n == 0);
    buf_dispose(&j->lists);
    buf_dispose(&j->text);
    token_ids_dispose(&j->model_ends);
    orphans_dispose(&j->orphans);
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

void jobs_unlink(struct job *job)
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

void jobs_leave_memory(struct jobs *j, struct job *job)
{
    assert(job->n_references > 0);
    if (--job->n_references > 0)
        return;
    jobs_unlink(job);
    job_free(job);
    j->n--;
}

/* Its FINAL frame comes with the end of its last choice. The job may be gone afterwards, unless the
 * caller has a reference. */
static void cancel_all(struct jobs *j, struct job *job, enum status status, int64_t now_us)
{
    job->is_ending = true;
    job->n_references++;
    for (uint32_t i = 0; i < job->n_submitted; i++)
        scheduler_cancel(j->scheduler, &job->choices[i].sequence, status, now_us);
    jobs_leave_memory(j, job);
}

uint32_t jobs_retry_after_ms(const struct jobs *j, enum status status, uint64_t tenant)
{
    if (status != ST_OVERLOADED && status != ST_TIMEOUT)
        return 0;
    return (uint32_t)scheduler_retry_after_ms(j->scheduler, tenant);
}

void jobs_keep_end(struct jobs *j, struct job *job, const struct conn *told,
                   const struct wire_final *end)
{
    orphans_add(&j->orphans, &job->request, told, end);
    if (job->claimant != NULL)
        wire_put_settled(&job->claimant->out, orphans_find(&j->orphans, &job->request));
    job->claimant = NULL;
}

void jobs_settle(struct jobs *j, int64_t now_us)
{
    while (j->failed != NULL) {
        struct job *job = j->failed;

        j->failed = job->next_failed;
        cancel_all(j, job, job->status, now_us);
        jobs_leave_memory(j, job);
    }
}

/* ---- what the gateway says ---- */

static bool are_ids_known(const struct jobs *j, const int32_t *ids, uint32_t n)
{
    uint32_t n_vocab = tokenizer_n_vocab(j->tokenizer);

    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)ids[i] >= n_vocab)
            return false;
    return true;
}

static bool is_vocabulary_known(const struct jobs *j, const struct wire_submit *v)
{
    const struct sampling *s = &v->sampling;

    /* Biases ascend. */
    return are_ids_known(j, v->prompt, v->n_prompt) &&
           are_ids_known(j, v->stop_ids, v->n_stop_ids) &&
           (s->n_bias == 0 || are_ids_known(j, &s->bias[s->n_bias - 1].id, 1));
}

/* All choices or none. */
static enum status submit_choices(struct jobs *j, struct job *job, const struct wire_submit *v,
                                  int64_t now_us)
{
    while (job->n_submitted < job->n_choices) {
        struct sequence *s = &job->choices[job->n_submitted].sequence;
        enum status status = scheduler_submit(j->scheduler, s, v->prompt, v->n_prompt, now_us);

        if (status != ST_OK) {
            cancel_all(j, job, status, now_us);
            return status;
        }
        job->n_submitted++;
        job->n_references++;
    }
    return ST_OK;
}

static enum status start(struct jobs *j, struct conn *c, const struct wire_submit *v,
                         int64_t now_us)
{
    const struct job_template t = {.tokenizer = j->tokenizer,
                                   .model_ends = &j->model_ends,
                                   .cache = &j->cache,
                                   .now_us = now_us,
                                   .held = c->starved};
    struct job *job;
    enum status status = job_new(&t, v, &job);

    if (status != ST_OK)
        return status;
    j->n++;
    /* Linked when it is whole: what a refusal cancels is not told. */
    status = submit_choices(j, job, v, now_us);
    if (status == ST_OK)
        link_job(c, job);
    jobs_leave_memory(j, job);
    return status;
}

/* What a gateway may be told about a job that never began. */
static enum status refusal(enum status s)
{
    if (s == ST_NO_MEMORY)
        return ST_UNAVAILABLE; /* what others hold comes back as they end */
    return s == ST_TOO_LONG || s == ST_OVERLOADED || s == ST_UNAVAILABLE || s == ST_INVALID
               ? s
               : ST_INTERNAL;
}

static void refuse(const struct jobs *j, struct conn *c, const struct wire_submit *v, enum status s)
{
    struct wire_final out = {.job = v->job,
                             .status = (uint16_t)refusal(s),
                             .retry_after_ms = jobs_retry_after_ms(j, s, v->tenant)};
    char request[ID_HEX_BYTES];

    id_to_hex(&v->request, request);
    log_info(request, "engine.refuse", "status=%s prompt_tokens=%u max_tokens=%u choices=%u",
             status_name(s), v->n_prompt, v->max_tokens, v->n_choices);
    wire_put_final(&c->finals, &out);
}

enum status jobs_submit(struct jobs *j, struct conn *c, const struct wire_frame *f, int64_t now_us)
{
    struct wire_submit v;
    enum status status = wire_get_submit(f, &j->lists, &v);

    if (status != ST_OK)
        return status;
    if (find(c, v.job) != NULL)
        return ST_CORRUPT;
    if (j->draining)
        status = ST_UNAVAILABLE;
    else if (!is_vocabulary_known(j, &v))
        status = ST_INVALID;
    else
        status = start(j, c, &v, now_us);
    if (status != ST_OK)
        refuse(j, c, &v, status);
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
        cancel_all(j, job, ST_CANCELLED, now_us);
    return ST_OK;
}

/* Its counts are exact as soon as it is cancelled: of its rows in flight nothing is counted. */
static void orphan(struct jobs *j, struct job *job, int64_t now_us)
{
    struct wire_final end;

    job->n_references++;
    jobs_unlink(job);
    cancel_all(j, job, ST_CANCELLED, now_us);
    assert(job->n_ended == job->n_choices);
    job_fill_final(job, &end);
    jobs_keep_end(j, job, NULL, &end);
    jobs_leave_memory(j, job);
}

void jobs_drop(struct jobs *j, struct conn *c, int64_t now_us)
{
    orphans_leave(&j->orphans, c);
    while (c->jobs != NULL)
        orphan(j, c->jobs, now_us);
}

void jobs_evict(struct jobs *j, struct conn *c, bool waiting_only, int64_t now_us)
{
    struct job *next;

    for (struct job *job = c->jobs; job != NULL; job = next) {
        next = job->next;
        if (!waiting_only || job_is_waiting(job))
            cancel_all(j, job, ST_UNAVAILABLE, now_us);
    }
}

void jobs_hold(struct conn *c)
{
    for (struct job *job = c->jobs; job != NULL; job = job->next)
        for (uint32_t i = 0; i < job->n_choices; i++)
            job->choices[i].sequence.held = c->starved;
}
