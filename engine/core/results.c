/* What came of a step: tokens and scores to the caller, full pages to the prefix cache. */
#include <assert.h>
#include <string.h>

#include "engine/core/scheduler_state.h"

/* The results of one entry: of its rows that want something, in order. */
struct entry_results {
    const struct scheduled_step *step;
    const struct step_output *output;
    uint32_t at; /* index of the first into output->results */
};

static struct token_sample sample_of(const struct step_output *o, uint32_t i)
{
    const struct step_result *r = &o->results[i];

    return (struct token_sample){.id = r->id,
                                 .logprob = r->logprob,
                                 .tops = o->tops + (size_t)i * TOP_LOGPROBS_MAX,
                                 .n_tops = r->n_tops};
}

static uint32_t count_wanted(const struct scheduled_step *step, const struct scheduled_entry *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_rows; i++)
        n += step->step.rows[e->first_row + i].want != ROW_NOTHING;
    return n;
}

/* The first that isn't ST_OK. */
static enum status status_of(const struct entry_results *r, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (r->output->results[r->at + i].status != ST_OK)
            return r->output->results[r->at + i].status;
    return ST_OK;
}

/* Pages that are full and computed well. Followers, and whoever comes later, find them. */
static void insert_pages(struct scheduler *s, struct sequence *q, uint32_t n_end)
{
    while (q->uses_cache && q->chain.n_pages < n_end / KV_PAGE_TOKENS) {
        uint32_t i = q->chain.n_pages;

        if (prefix_cache_insert(s->cache, &q->chain, q->tokens + (size_t)i * KV_PAGE_TOKENS,
                                &q->pages[i]) == PREFIX_REFUSED)
            return;
    }
}

/* What the same weights computed before may be as bad, and would be hit again and again. */
static void fail_not_finite(struct scheduler *s, struct sequence *q, int64_t now_us)
{
    q->not_finite = true;
    s->not_finite++;
    if (q->uses_cache && q->chain.domain->has_adapter)
        prefix_cache_flush_adapter(s->cache, q->chain.domain->adapter);
    else if (q->uses_cache)
        prefix_cache_flush(s->cache);
    scheduler_end(s, q, ST_INTERNAL, ENGINE_FINISH_NONE, now_us);
}

static void give_scores(struct scheduler *s, const struct entry_results *r,
                        const struct scheduled_entry *e)
{
    struct sequence *q = e->sequence;
    uint32_t at = r->at;

    for (uint32_t i = 0; i < e->n_rows; i++) {
        const struct step_row *row = &r->step->step.rows[e->first_row + i];
        struct token_sample t;

        if (row->want == ROW_NOTHING)
            continue;
        t = sample_of(r->output, at++);
        if (row->want != ROW_SCORE)
            continue;
        assert(row->position == q->n_scored);
        q->n_scored++;
        s->events.on_score(s->arg, q, row->position + 1, &t);
    }
}

static void take_token(struct scheduler *s, struct sequence *q, const struct token_sample *t,
                       int64_t now_us)
{
    bool last, stop;

    q->tokens[q->n_tokens++] = t->id;
    s->output_tokens++;
    last = q->n_tokens == q->limit;
    stop = s->events.on_token(s->arg, q, t, last);
    if (stop || last)
        scheduler_end(s, q, ST_OK, stop ? ENGINE_FINISH_STOP : ENGINE_FINISH_LENGTH, now_us);
}

static void count_prompt(struct scheduler *s, struct sequence *q, uint32_t n_end, int64_t now_us)
{
    if (q->prefilled || n_end < q->n_prompt)
        return;
    q->prefilled = true;
    q->prefilled_us = now_us;
    s->prompt_tokens += q->n_prompt;
}

static void apply_entry(struct scheduler *s, const struct scheduled_entry *e,
                        const struct entry_results *r, uint32_t n, int64_t now_us)
{
    struct sequence *q = e->sequence;
    enum status status = status_of(r, n);

    if (e->samples)
        q->n_pending--;
    if (status != ST_OK && status != ST_NO_CHOICE) {
        count_prompt(s, q, e->n_end, now_us);
        fail_not_finite(s, q, now_us);
        return;
    }
    insert_pages(s, q, e->n_end);
    give_scores(s, r, e);
    count_prompt(s, q, e->n_end, now_us);
    if (status == ST_NO_CHOICE) { /* a sound row of which the request forbids every token */
        scheduler_end(s, q, ST_NO_CHOICE, ENGINE_FINISH_NONE, now_us);
    } else if (e->samples) {
        const struct token_sample t = sample_of(r->output, r->at + n - 1);

        take_token(s, q, &t, now_us);
    } else if (q->prefilled && q->max_tokens == 0) {
        scheduler_end(s, q, ST_OK, ENGINE_FINISH_LENGTH, now_us);
    }
}

static bool results_match(const struct scheduled_step *step, const struct step_output *output)
{
    uint32_t r = 0;

    for (uint32_t i = 0; i < step->step.n_rows; i++) {
        if (step->step.rows[i].want == ROW_NOTHING)
            continue;
        if (r == output->n || output->results[r].row != i)
            return false;
        r++;
    }
    return r == output->n;
}

/* Steps leave in the order in which they came; only one that was never submitted may fail while an
 * older one is in flight, and that is the newest. */
static void leave_flight(struct scheduler *s, struct scheduled_step *step, int64_t now_us)
{
    s->left_us = now_us;
    assert(s->n_steps > 0);
    if (step == scheduler_oldest(s))
        s->first_step = (s->first_step + 1) % s->cfg.depth;
    else
        assert(step == &s->steps[(s->first_step + s->n_steps - 1) % s->cfg.depth]);
    s->n_steps--;
    if (s->n_steps == 0)
        s->drain = false;
}

/* It began when it was built, or when the one before it was done. */
static void learn_pace(struct scheduler *s, const struct scheduled_step *step, int64_t now_us)
{
    int64_t from = step->built_us > s->left_us ? step->built_us : s->left_us;

    if (now_us <= from)
        return;
    pace_learn(&s->pace, step->predicted_ns, (uint64_t)(now_us - from) * 1000);
    s->cost = pace_cost(&s->pace, &s->cfg.cost);
}

void scheduler_apply(struct scheduler *s, struct scheduled_step *step,
                     const struct step_output *output, int64_t now_us)
{
    struct entry_results r = {.step = step, .output = output};

    assert(step == scheduler_oldest(s));
    if (!results_match(step, output)) {
        scheduler_fail(s, step, now_us);
        return;
    }
    learn_pace(s, step, now_us);
    for (uint32_t i = 0; i < step->n_entries; i++) {
        const struct scheduled_entry *e = &step->entries[i];
        uint32_t n = count_wanted(step, e);

        e->sequence->n_in_flight--;
        if (e->sequence->state == SEQUENCE_ENDED)
            scheduler_step_left(s, e->sequence);
        else
            apply_entry(s, e, &r, n, now_us);
        r.at += n;
    }
    leave_flight(s, step, now_us);
}

static void fail_sequence(struct scheduler *s, struct sequence *q, int64_t now_us)
{
    q->n_in_flight--;
    if (q->state == SEQUENCE_ENDED)
        scheduler_step_left(s, q);
    else
        scheduler_end(s, q, ST_INTERNAL, ENGINE_FINISH_NONE, now_us);
}

void scheduler_fail(struct scheduler *s, struct scheduled_step *step, int64_t now_us)
{
    for (uint32_t i = 0; i < step->n_entries; i++)
        fail_sequence(s, step->entries[i].sequence, now_us);
    leave_flight(s, step, now_us);
}

/* Takes the entry's rows out; the pages that it named stay in step.pages, unnamed. */
static void remove_entry(struct scheduled_step *step, uint32_t at)
{
    const struct scheduled_entry gone = step->entries[at];
    struct device_step *d = &step->step;
    uint32_t after = gone.first_row + gone.n_rows;

    memmove(d->rows + gone.first_row, d->rows + after, (d->n_rows - after) * sizeof d->rows[0]);
    d->n_rows -= gone.n_rows;
    for (uint32_t r = gone.first_row; r < d->n_rows; r++)
        d->rows[r].sequence--;
    step->n_entries--;
    d->n_sequences--;
    memmove(step->entries + at, step->entries + at + 1,
            (step->n_entries - at) * sizeof step->entries[0]);
    memmove(d->sequences + at, d->sequences + at + 1,
            (d->n_sequences - at) * sizeof d->sequences[0]);
    for (uint32_t i = at; i < step->n_entries; i++)
        step->entries[i].first_row -= gone.n_rows;
}

bool scheduler_fail_entry(struct scheduler *s, struct scheduled_step *step, uint32_t at,
                          int64_t now_us)
{
    struct sequence *q = step->entries[at].sequence;

    remove_entry(step, at);
    step->predicted_ns = 0;
    fail_sequence(s, q, now_us);
    if (step->n_entries == 0)
        leave_flight(s, step, now_us);
    return step->n_entries > 0;
}
