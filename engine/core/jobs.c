#include "engine/core/jobs.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/core/job.h"

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

static void leave_memory(struct jobs *j, struct job *job)
{
    assert(job->n_references > 0);
    if (--job->n_references > 0)
        return;
    unlink_job(job);
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
    leave_memory(j, job);
}

/* ---- what the scheduler says ---- */

static void add_entry(struct job *job, uint64_t step, struct wire_step_entry *e)
{
    job_fill_entry(job, e);
    conn_add_entry(job->conn, step, e);
}

/* What is in j->text, and the samples that belong to it. */
static void put_text(struct jobs *j, struct job_choice *c, enum engine_finish finish)
{
    struct wire_step_entry e = {.choice = c->sequence.sampling.choice,
                                .finish = (uint8_t)finish,
                                .text = j->text.data,
                                .text_len = (uint32_t)j->text.len,
                                .tokens = j->samples};

    if (c->job->conn == NULL)
        return;
    if (j->text.failed) {
        c->job->conn->broken = true;
        return;
    }
    c->is_finished = finish != ENGINE_FINISH_NONE;
    if (c->logprobs.samples != NULL)
        e.n_tokens = logprob_queue_take(&c->logprobs, detok_released_bytes(c->detok), j->samples);
    add_entry(c->job, j->step, &e);
}

/* True: a stop string is complete. A token without text has no sample to send: the bytes of those
 * that are sent are the text. */
static bool feed(struct jobs *j, struct job_choice *c, const struct token_sample *t)
{
    uint64_t before = detok_fed_bytes(c->detok);
    bool is_stop;

    detok_search_stops(c->detok, sequence_n_output(&c->sequence) > c->sequence.sampling.min_tokens);
    is_stop = detok_feed(c->detok, t->id, &j->text);
    if (c->logprobs.samples != NULL && detok_fed_bytes(c->detok) > before)
        logprob_queue_push(&c->logprobs, t, detok_fed_bytes(c->detok));
    return is_stop;
}

static bool on_token(void *arg, struct sequence *s, const struct token_sample *t, bool last)
{
    struct job_choice *c = job_choice_of(s);
    struct jobs *j = arg;
    bool is_end = job_is_end_id(c->job, j->tokenizer, t->id), is_stop = false;

    buf_clear(&j->text);
    c->job->output_tokens++;
    if (!is_end)
        is_stop = feed(j, c, t);
    if (!is_stop && (is_end || last))
        is_stop = detok_flush(c->detok, &j->text);
    put_text(j, c,
             is_end || is_stop ? ENGINE_FINISH_STOP
             : last            ? ENGINE_FINISH_LENGTH
                               : ENGINE_FINISH_NONE);
    return is_end || is_stop;
}

/* An entry each: a frame is cut where it grows long, so a long prompt's don't make one. */
static void on_score(void *arg, struct sequence *s, uint32_t position, const struct token_sample *t)
{
    struct wire_step_entry e = {.is_prompt = true, .text = "", .n_tokens = 1, .tokens = t};
    struct job_choice *c = job_choice_of(s);
    const struct jobs *j = arg;

    (void)position;
    if (c->job->conn != NULL)
        add_entry(c->job, j->step, &e);
}

static void remember_end(struct job *job, const struct sequence *s, enum status status,
                         enum engine_finish finish)
{
    job->n_ended++;
    job->not_finite |= s->not_finite;
    if (status != ST_OK && job->status == ST_OK)
        job->status = status;
    if (job->finish != ENGINE_FINISH_LENGTH)
        job->finish = finish;
}

static void fail_later(struct jobs *j, struct job *job)
{
    job->is_ending = true;
    job->n_references++;
    job->next_failed = j->failed;
    j->failed = job;
}

/* When the queue might take what it refuses now. */
static uint32_t retry_after_ms(const struct jobs *j, enum status status, uint64_t tenant)
{
    if (status != ST_OVERLOADED && status != ST_TIMEOUT)
        return 0;
    return (uint32_t)scheduler_retry_after_ms(j->scheduler, tenant);
}

/* For who claims the request, now or later. */
static void keep_end(struct jobs *j, struct job *job, const struct conn *told,
                     const struct wire_final *end)
{
    orphans_add(&j->orphans, &job->request, told, end);
    if (job->claimant != NULL)
        wire_put_settled(&job->claimant->out, orphans_find(&j->orphans, &job->request));
    job->claimant = NULL;
}

static void put_final(struct jobs *j, struct job *job)
{
    struct wire_final out;

    job_fill_final(job, &out);
    out.retry_after_ms = retry_after_ms(j, job->status, job->choices[0].sequence.tenant);
    wire_put_final(&job->conn->finals, &out);
    keep_end(j, job, job->conn, &out);
    /* Its id is free again, and nothing more may be said about it. */
    unlink_job(job);
}

static void on_end(void *arg, struct sequence *s, enum status status, enum engine_finish finish)
{
    struct job_choice *c = job_choice_of(s);
    struct job *job = c->job;
    struct jobs *j = arg;

    remember_end(job, s, status, finish);
    if (job->conn == NULL)
        return;
    if (status == ST_OK && !c->is_finished) { /* it had no token to come with */
        buf_clear(&j->text);
        put_text(j, c, finish);
    }
    if (job->n_ended == job->n_choices)
        put_final(j, job);
    else if (status != ST_OK && !job->is_ending)
        fail_later(j, job);
}

static void on_release(void *arg, struct sequence *s)
{
    leave_memory(arg, job_choice_of(s)->job);
}

const struct scheduler_events jobs_events = {
    .on_token = on_token, .on_score = on_score, .on_end = on_end, .on_release = on_release};

void jobs_settle(struct jobs *j, int64_t now_us)
{
    while (j->failed != NULL) {
        struct job *job = j->failed;

        j->failed = job->next_failed;
        cancel_all(j, job, job->status, now_us);
        leave_memory(j, job);
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
    leave_memory(j, job);
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
                             .retry_after_ms = retry_after_ms(j, s, v->tenant)};
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
    unlink_job(job);
    cancel_all(j, job, ST_CANCELLED, now_us);
    assert(job->n_ended == job->n_choices);
    job_fill_final(job, &end);
    keep_end(j, job, NULL, &end);
    leave_memory(j, job);
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
