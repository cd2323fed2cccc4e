#include "engine/core/job.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(WIRE_STOPS_MAX == STOP_STRINGS_MAX, "the wire carries what the detokenizer takes");
_Static_assert(WIRE_STOP_BYTES_MAX == STOP_STRING_BYTES_MAX, "as above");
_Static_assert(DETOK_HELD_BYTES_MAX < WIRE_ENTRY_TOKENS_MAX, "an entry has room for all of them");
_Static_assert(ENGINE_SALT_BYTES == CACHE_HASH_BYTES, "a salt travels as it is hashed");
_Static_assert(ENGINE_PRIORITIES == PRIORITY_CLASSES, "the scheduler's classes are the API's");

/* ---- memory ---- */

static enum status copy_lists(struct job *job, const struct token_ids *model_ends,
                              const struct wire_submit *v)
{
    size_t n_model = v->ignore_eos ? 0 : model_ends->n;
    const size_t id_bytes = sizeof job->end_ids[0], bias_bytes = sizeof job->bias[0];

    /* One more each: an empty list is no failure. */
    job->end_ids = calloc(v->n_stop_ids + n_model + 1, id_bytes);
    job->bias = calloc((size_t)v->sampling.n_bias + 1, bias_bytes);
    if (job->end_ids == NULL || job->bias == NULL)
        return ST_NO_MEMORY;
    job->n_stop_ids = v->n_stop_ids;
    if (v->n_stop_ids > 0)
        memcpy(job->end_ids, v->stop_ids, v->n_stop_ids * id_bytes);
    if (n_model > 0)
        memcpy(job->end_ids + v->n_stop_ids, model_ends->ids, n_model * id_bytes);
    if (v->sampling.n_bias > 0)
        memcpy(job->bias, v->sampling.bias, v->sampling.n_bias * bias_bytes);
    return ST_OK;
}

static struct sampling sampling_of(const struct job *job, const struct token_ids *model_ends,
                                   const struct wire_submit *v, uint32_t choice)
{
    struct sampling s = v->sampling;

    s.choice = choice;
    s.bias = job->bias;
    s.end_ids = job->end_ids;
    s.n_end_ids = v->n_stop_ids + (v->ignore_eos ? 0 : (uint32_t)model_ends->n);
    s.want_prompt_logprobs = v->sampling.want_prompt_logprobs && choice == 0;
    return s;
}

static void init_sequence(struct job *job, const struct job_template *t,
                          const struct wire_submit *v, uint32_t choice)
{
    struct sequence *first = &job->choices[0].sequence;

    job->choices[choice].sequence = (struct sequence){
        .tenant = v->tenant,
        .project = v->project,
        .weight = v->weight,
        .priority = v->priority,
        /* The others are out of the queue with the first, which has their prompt computed. */
        .queue_deadline_us =
            choice == 0 && v->queue_max_ms > 0 ? t->now_us + (int64_t)v->queue_max_ms * 1000 : 0,
        .max_tokens = v->max_tokens,
        .sampling = sampling_of(job, t->model_ends, v, choice),
        .cache = &job->cache,
        .leader = choice == 0 ? NULL : first,
        .held = t->held,
    };
}

/* Most bytes that its detokenizer may hold back; less than DETOK_HELD_BYTES_MAX, since choices are
 * many and stop strings short. */
static uint32_t held_bytes_max(const struct wire_submit *v)
{
    size_t longest = 1;

    for (uint32_t i = 0; i < v->n_stops; i++)
        longest = v->stops[i].len > longest ? v->stops[i].len : longest;
    return (uint32_t)(DETOK_HELD_BYTES_MAX - STOP_STRING_BYTES_MAX + longest);
}

static enum status init_choice(struct job *job, const struct job_template *t,
                               const struct wire_submit *v, uint32_t choice)
{
    struct job_choice *c = &job->choices[choice];
    enum status s;

    c->job = job;
    init_sequence(job, t, v, choice);
    s = detok_new(t->tokenizer, v->stops, v->n_stops, &c->detok);
    if (s != ST_OK)
        return s;
    detok_follow(c->detok, v->prompt[v->n_prompt - 1]);
    if (!v->sampling.want_logprobs)
        return ST_OK;
    return logprob_queue_init(&c->logprobs, held_bytes_max(v), v->sampling.top_logprobs);
}

enum status job_new(const struct job_template *t, const struct wire_submit *v, struct job **out)
{
    struct job *job = calloc(1, sizeof *job + v->n_choices * sizeof job->choices[0]);
    enum status s;

    if (job == NULL)
        return ST_NO_MEMORY;
    job->id = v->job;
    job->request = v->request;
    job->ignore_eos = v->ignore_eos;
    job->n_choices = v->n_choices;
    job->n_references = 1;
    job->cache = *t->cache;
    memcpy(job->cache.salt, v->salt, sizeof job->cache.salt);
    s = copy_lists(job, t->model_ends, v);
    for (uint32_t i = 0; s == ST_OK && i < v->n_choices; i++)
        s = init_choice(job, t, v, i);
    if (s != ST_OK) {
        job_free(job);
        return s;
    }
    *out = job;
    return ST_OK;
}

void job_free(struct job *job)
{
    for (uint32_t i = 0; i < job->n_choices; i++) {
        detok_free(job->choices[i].detok);
        logprob_queue_dispose(&job->choices[i].logprobs);
    }
    free(job->end_ids);
    free(job->bias);
    free(job);
}

bool job_is_end_id(const struct job *job, const struct tokenizer *t, int32_t id)
{
    for (uint32_t i = 0; i < job->n_stop_ids; i++)
        if (job->end_ids[i] == id)
            return true;
    return !job->ignore_eos && tokenizer_is_eog(t, id);
}

/* ---- what it counts as ---- */

static uint32_t prompt_tokens(const struct job *job)
{
    const struct sequence *first = &job->choices[0].sequence;

    return first->prefilled ? first->n_prompt : 0;
}

static uint32_t cached_tokens(const struct job *job)
{
    return prompt_tokens(job) > 0 ? job->choices[0].sequence.cached_tokens : 0;
}

void job_fill_entry(const struct job *job, struct wire_step_entry *out)
{
    out->job = job->id;
    out->prompt_tokens = prompt_tokens(job);
    out->cached_tokens = cached_tokens(job);
    out->output_tokens = job->output_tokens;
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

void job_fill_final(const struct job *job, struct wire_final *out)
{
    bool has_failed = job->status == ST_INTERNAL || job->status == ST_NO_CHOICE;
    bool is_free = job->not_finite || (has_failed && job->output_tokens == 0);

    *out = (struct wire_final){
        .job = job->id,
        .status = (uint16_t)job->status,
        .finish = (uint8_t)(job->status == ST_OK ? job->finish : ENGINE_FINISH_NONE)};
    fill_times(&job->choices[0].sequence, out);
    if (is_free)
        return;
    out->prompt_tokens = prompt_tokens(job);
    out->cached_tokens = cached_tokens(job);
    out->output_tokens = job->output_tokens;
}
