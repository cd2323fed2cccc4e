/* Builds the next step in two passes: planning gives rows to sequences, and may admit and preempt;
 * emitting writes down what was planned.
 *
 * Decodes come first, a row each. What they leave of the step's predicted time is for prompts: half
 * to the shortest, the rest to the first in fair order and those after it. */
#include <assert.h>

#include "engine/core/scheduler_state.h"

/* Rows of a prompt that a step takes however long its decodes are, which would else keep every
 * prompt out: what this part of the step's time pays for, at most a page, at least one. */
#define CHUNK_MIN_PART 4
#define CHUNK_MIN_MOST KV_PAGE_TOKENS

/* Admissions ahead of what is left over, for one who is first and one who is shortest. */
#define URGENT_MAX 2

static uint64_t step_ns(const struct scheduler *s)
{
    return s->cfg.step_us > 0 ? (uint64_t)s->cfg.step_us * 1000 : INT64_MAX;
}

/* Of its next rows, how many have no logits before one that has: all but the last, which samples,
 * or where the prompt's scores are wanted, those whose scores were given before a preemption. */
static uint32_t plain_rows(const struct sequence *q)
{
    if (!q->sampling.want_prompt_logprobs || q->n_scored + 1 >= q->n_prompt)
        return sequence_rows_left(q) - 1;
    return q->n_scored > q->n_computed ? q->n_scored - q->n_computed : 0;
}

static void spend(struct scheduler *s, const struct sequence *q, uint32_t n_rows)
{
    s->budget.ns -= (int64_t)cost_chunk_ns(&s->cost, q->n_computed, n_rows, plain_rows(q));
}

static uint32_t rows_in(const struct scheduler *s, const struct sequence *q, uint32_t most,
                        uint64_t ns)
{
    return cost_rows_in(&s->cost, q->n_computed, plain_rows(q), most, ns);
}

/* ---- decodes ---- */

/* A row for one that has a single one left. False: it needs a page and can't have one now. */
static bool plan_decode(struct scheduler *s, struct sequence *q)
{
    if (q->n_computed == q->n_pages * KV_PAGE_TOKENS) {
        if (!room_to_grow(s, q))
            return false;
        scheduler_take_pages(s, q, 1);
    }
    q->n_planned = 1;
    spend(s, q, 1);
    return true;
}

static void plan_decodes(struct scheduler *s)
{
    for (struct sequence *q = s->running.first; q != NULL; q = q->next)
        q->n_planned = 0;
    for (struct sequence *q = s->running.first; q != NULL; q = q->next)
        if (!q->held && sequence_is_decoding(q))
            (void)plan_decode(s, q);
}

/* ---- prompts ---- */

/* Its tokens are not all computed, and it has no rows in this step yet. */
static bool is_prefilling(const struct sequence *q)
{
    return !q->held && q->n_planned == 0 && sequence_rows_left(q) > 1;
}

/* Of two classes: what was admitted as better, then whose turn it is, then what came first. */
static bool is_ahead(const struct sequence *a, const struct sequence *b)
{
    int64_t lead = fair_lead(a->project_node->parent->parent, b->project_node->parent->parent);

    if (a->level != b->level)
        return a->level < b->level;
    return lead != 0 ? lead < 0 : a->arrival < b->arrival;
}

static bool is_before(const struct sequence *a, const struct sequence *b)
{
    int order;

    if (a->priority != b->priority)
        return is_ahead(a, b);
    order = fair_compare(a->project_node, b->project_node);
    return order != 0 ? order < 0 : a->age < b->age;
}

static uint32_t chunk_min(const struct scheduler *s, const struct sequence *q)
{
    uint32_t n = rows_in(s, q, CHUNK_MIN_MOST, step_ns(s) / CHUNK_MIN_PART);

    return n > 1 ? n : 1;
}

/* In the class of the one that is ahead, the first in fair order. */
static struct sequence *first_prompt(const struct scheduler *s)
{
    struct sequence *ahead = NULL, *first;

    for (struct sequence *q = s->running.first; q != NULL; q = q->next)
        if (is_prefilling(q) && (ahead == NULL || is_ahead(q, ahead)))
            ahead = q;
    if (ahead == NULL)
        return NULL;
    first = ahead;
    for (struct sequence *q = s->running.first; q != NULL; q = q->next)
        if (is_prefilling(q) && q->priority == ahead->priority && is_before(q, first))
            first = q;
    return first;
}

static struct sequence *shortest_prompt(const struct scheduler *s)
{
    struct sequence *best = NULL;

    for (struct sequence *q = s->running.first; q != NULL; q = q->next)
        if (is_prefilling(q) && (best == NULL || sequence_rows_left(q) < sequence_rows_left(best)))
            best = q;
    return best;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What is left of the step's time; all of it for a prompt that is alone, so that it isn't cut into
 * small chunks by what every step costs. */
static int64_t time_left(const struct scheduler *s)
{
    bool is_alone = s->n_running == 1 && scheduler_n_waiting(s) == 0;

    return is_alone ? (int64_t)step_ns(s) : s->budget.ns;
}

/* As many rows as `rows` and `ns` allow; where it is `assured`, no fewer than chunk_min. */
static void plan_chunk(struct scheduler *s, struct sequence *q, uint32_t rows, int64_t ns,
                       bool assured)
{
    uint32_t at_least = assured ? chunk_min(s, q) : 0;
    uint32_t left = sequence_rows_left(q), n = 0;

    if (ns > 0)
        n = rows_in(s, q, least(left, rows), (uint64_t)ns);
    if (n < at_least)
        n = least(at_least, least(left, s->budget.rows));
    if (n == 0)
        return;
    q->n_planned = n;
    s->budget.rows -= n;
    spend(s, q, n);
}

/* Looked up, not remembered: whose chunk was planned may have given way to another since. */
static bool has_chunk(const struct scheduler *s)
{
    for (const struct sequence *q = s->running.first; q != NULL; q = q->next)
        if (q->n_planned > 0 && sequence_rows_left(q) > 1)
            return true;
    return false;
}

static bool has_budget(const struct scheduler *s)
{
    return s->budget.rows > 0 && (s->budget.ns > 0 || !has_chunk(s));
}

/* With the last prompt row of the budget, so that one-row prompts are bounded by it as well. */
static bool admit_and_plan(struct scheduler *s, struct sequence *q, bool plan_all, int64_t now_us)
{
    if (!admit(s, q, now_us))
        return false;
    if (sequence_is_decoding(q)) {
        if (plan_decode(s, q))
            s->budget.rows--;
    } else if (plan_all) {
        plan_chunk(s, q, s->budget.rows, time_left(s), !has_chunk(s));
    }
    return true;
}

/* One that would come before those who already share the budget doesn't wait for what is left. */
static void admit_urgent(struct scheduler *s, int64_t now_us)
{
    for (uint32_t i = 0; i < URGENT_MAX && s->budget.rows > 0; i++) {
        struct sequence *first = first_prompt(s), *shortest = shortest_prompt(s);
        struct sequence *q = first != NULL ? admit_candidate(s, now_us) : NULL;

        if (q == NULL)
            return;
        q->level = queue_class_level(&s->queue, q->priority, now_us);
        if (q != s->champion && !is_before(q, first) && q->n_tokens >= sequence_rows_left(shortest))
            return;
        if (!admit_and_plan(s, q, false, now_us))
            return;
    }
}

static void admit_rest(struct scheduler *s, int64_t now_us)
{
    while (has_budget(s)) {
        struct sequence *q = admit_candidate(s, now_us);

        if (q == NULL || !admit_and_plan(s, q, true, now_us) || q->n_planned == 0)
            return;
    }
}

/* The champion and the first one always get on, whatever decodes take of the time. */
static void plan_prompts(struct scheduler *s)
{
    struct sequence *first = first_prompt(s), *shortest = shortest_prompt(s), *c = s->champion;

    if (first == NULL)
        return;
    if (shortest != first)
        plan_chunk(s, shortest, s->budget.rows / 2, s->budget.ns / 2, shortest == c);
    if (c != NULL && c != first && c->state == SEQUENCE_RUNNING && is_prefilling(c))
        plan_chunk(s, c, 0, 0, true);
    plan_chunk(s, first, s->budget.rows, time_left(s), true);
    while (has_budget(s) && (first = first_prompt(s)) != NULL) {
        plan_chunk(s, first, s->budget.rows, s->budget.ns, false);
        if (first->n_planned == 0)
            return;
    }
}

/* ---- writing it down ---- */

static bool wants_score(const struct sequence *q, uint32_t position)
{
    return q->sampling.want_prompt_logprobs && position >= q->n_scored &&
           position + 1 < q->n_prompt;
}

static void emit_row(const struct sequence *q, uint32_t position, struct step_row *row)
{
    if (position < q->n_tokens) {
        row->id = q->tokens[position];
        row->ticket = ROW_LITERAL;
    } else {
        assert(position == q->n_tokens && q->n_pending == 1);
        row->id = (int32_t)q->pending_row;
        row->ticket = q->pending_ticket;
    }
    if (wants_score(q, position)) {
        row->want = ROW_SCORE;
        row->target = q->tokens[position + 1];
    }
}

static void emit_sequence(struct device_step *step, const struct sequence *q, bool samples)
{
    step->sequences[step->n_sequences++] =
        (struct step_sequence){.slot = q->slot,
                               .first_page = step->n_pages,
                               .n_pages = q->n_pages,
                               .output_index = sequence_n_output(q) + q->n_pending,
                               .adapter = q->adapter,
                               .masked = q->masked && samples};
    for (uint32_t i = 0; i < q->n_pages; i++)
        step->pages[step->n_pages++] = q->pages[i];
}

/* A prompt's row is a token's work, and so is one that is computed again; a sampled token is two,
 * with the row that takes in the token before it. */
static uint64_t work_of(const struct sequence *q, const struct scheduled_entry *e)
{
    if (!e->samples)
        return e->n_rows;
    return e->n_rows + (e->n_end > q->n_prompt ? 1 : 2);
}

/* By the cost that was measured, so that the pace has something fixed to be a part of. */
static uint64_t predicted_ns(const struct scheduler *s, const struct scheduled_step *t,
                             const struct scheduled_entry *e)
{
    const struct cost *c = &s->cfg.cost;
    uint64_t ns = cost_rows_ns(c, e->n_end - e->n_rows, e->n_rows);

    for (uint32_t i = 0; i < e->n_rows; i++)
        ns += t->step.rows[e->first_row + i].want != ROW_NOTHING ? c->logits_ns : 0;
    return ns;
}

static void count_new_rows(struct sequence *q, const struct scheduled_entry *e)
{
    uint32_t first = e->n_end - e->n_rows;

    if (e->n_end <= q->n_reached)
        return;
    fair_earn(q->project_node, e->n_end - (first > q->n_reached ? first : q->n_reached));
    q->n_reached = e->n_end;
}

static void emit(struct scheduler *s, struct scheduled_step *t, struct sequence *q)
{
    struct scheduled_entry *e = &t->entries[t->n_entries++];

    *e = (struct scheduled_entry){.sequence = q,
                                  .n_end = q->n_computed + q->n_planned,
                                  .first_row = t->step.n_rows,
                                  .n_rows = q->n_planned,
                                  .samples =
                                      q->n_planned == sequence_rows_left(q) && q->max_tokens > 0};
    for (uint32_t i = 0; i < q->n_planned; i++) {
        struct step_row *row = &t->step.rows[t->step.n_rows++];

        *row = (struct step_row){.position = q->n_computed + i, .sequence = t->step.n_sequences};
        emit_row(q, q->n_computed + i, row);
    }
    emit_sequence(&t->step, q, e->samples);
    queue_charge(&s->queue, q, work_of(q, e));
    q->n_computed = e->n_end;
    count_new_rows(q, e);
    q->n_planned = 0;
    q->n_in_flight++;
    if (e->samples) {
        t->step.rows[t->step.n_rows - 1].want = ROW_SAMPLE;
        q->n_pending++;
    }
    t->predicted_ns += predicted_ns(s, t, e);
}

static struct scheduled_step *emit_all(struct scheduler *s)
{
    struct scheduled_step *t = &s->steps[(s->first_step + s->n_steps) % s->cfg.depth];

    t->n_entries = 0;
    t->built_us = s->now_us;
    t->predicted_ns = s->cfg.cost.base_ns;
    t->is_constrained = false;
    t->constrained = ST_OK;
    t->step.n_rows = t->step.n_sequences = t->step.n_pages = 0;
    for (struct sequence *q = s->running.first; q != NULL; q = q->next)
        if (q->n_planned > 0)
            emit(s, t, q);
    return t->n_entries > 0 ? t : NULL;
}

static void expire(struct scheduler *s, int64_t now_us)
{
    struct sequence *q;

    while ((q = queue_expired(&s->queue, now_us)) != NULL)
        scheduler_end(s, q, ST_TIMEOUT, ENGINE_FINISH_NONE, now_us);
}

struct scheduled_step *scheduler_build(struct scheduler *s, int64_t now_us)
{
    struct scheduled_step *t;

    expire(s, now_us);
    if (s->n_steps == s->cfg.depth || s->drain)
        return NULL;
    s->now_us = now_us;
    s->champion = room_champion(s, now_us);
    s->budget = (struct budget){.rows = s->cfg.prefill_rows,
                                .ns = (int64_t)step_ns(s) - (int64_t)s->cost.base_ns};
    plan_decodes(s);
    admit_urgent(s, now_us);
    plan_prompts(s);
    admit_rest(s, now_us);
    s->champion = NULL;
    t = emit_all(s);
    if (t == NULL)
        return NULL;
    s->n_steps++;
    s->n_built++;
    s->rows_max = t->n_entries > s->rows_max ? t->n_entries : s->rows_max;
    return t;
}
