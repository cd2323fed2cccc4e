/* What the scheduler says of jobs: tokens and scores become STEP entries, the end of a job's last
 * choice its FINAL frame. Events don't call the scheduler: jobs_settle does what they leave. */
#include "engine/core/job.h"
#include "engine/core/jobs.h"
#include "engine/core/jobs_parts.h"

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

static void put_final(struct jobs *j, struct job *job)
{
    struct wire_final out;

    job_fill_final(job, &out);
    out.retry_after_ms = jobs_retry_after_ms(j, job->status, job->choices[0].sequence.tenant);
    wire_put_final(&job->conn->finals, &out);
    jobs_keep_end(j, job, job->conn, &out);
    /* Its id is free again, and nothing more may be said about it. */
    jobs_unlink(job);
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
    jobs_leave_memory(arg, job_choice_of(s)->job);
}

const struct scheduler_events jobs_events = {
    .on_token = on_token, .on_score = on_score, .on_end = on_end, .on_release = on_release};
