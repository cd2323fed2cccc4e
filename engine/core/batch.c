/* Builds the next step in two passes: `plan` gives rows and pages to sequences, oldest first, and
 * may preempt younger ones that have none yet; `emit` writes down what was planned. */
#include "engine/core/scheduler_state.h"

#include <assert.h>

static bool is_runnable(const struct sequence *q)
{
    return !q->held && sequence_rows_left(q) > 0;
}

/* The youngest held sequence, else the youngest that is younger than q. Ended ones are in no list.
 */
static struct sequence *pick_victim(struct scheduler *s, const struct sequence *q)
{
    for (struct sequence *v = s->running.prev; v != &s->running; v = v->prev)
        if (v->held && v != q)
            return v;
    return s->running.prev != &s->running && s->running.prev->age > q->age ? s->running.prev : NULL;
}

/* Frees pages until `n` are free. False: not now. */
static bool make_room(struct scheduler *s, const struct sequence *q, uint32_t n)
{
    while (s->pages.n_free < n) {
        struct sequence *victim = pick_victim(s, q);

        if (victim == NULL)
            return false;
        if (s->n_steps > 0) {
            s->drain = true;
            return false;
        }
        scheduler_preempt(s, victim);
    }
    return true;
}

/* Rows of q, at most `most`, for which pages are there or can be had; takes the pages. A longer
 * chunk is not worth a preemption, its first row is. */
static uint32_t plan_rows(struct scheduler *s, struct sequence *q, uint32_t most)
{
    uint32_t end = q->n_computed + most, covered = q->n_pages * KV_PAGE_TOKENS, missing;

    if (covered > q->n_computed || s->pages.n_free > 0) {
        uint64_t possible = (uint64_t)covered + (uint64_t)s->pages.n_free * KV_PAGE_TOKENS;

        end = possible < end ? (uint32_t)possible : end;
    } else {
        if (!make_room(s, q, 1))
            return 0;
        covered += KV_PAGE_TOKENS;
        end = end < covered ? end : covered;
    }
    missing = sequence_pages_for(end);
    missing = missing > q->n_pages ? missing - q->n_pages : 0;
    if (!pages_take(&s->pages, missing, q->pages + q->n_pages))
        assert(!"the pages were counted");
    q->n_pages += missing;
    return end - q->n_computed;
}

static void plan(struct scheduler *s, struct sequence *q, uint32_t *budget)
{
    uint32_t left = sequence_rows_left(q);

    q->n_planned = 0;
    if (!is_runnable(q))
        return;
    if (left == 1) { /* a decode, or as cheap as one: every sequence may have it */
        q->n_planned = plan_rows(s, q, 1);
        return;
    }
    if (*budget == 0)
        return;
    q->n_planned = plan_rows(s, q, left < *budget ? left : *budget);
    *budget -= q->n_planned;
}

static void plan_running(struct scheduler *s, uint32_t *budget)
{
    /* Victims are younger or held: they leave the list behind q, or in front of it without rows. */
    for (struct sequence *q = s->running.next; q != &s->running; q = q->next)
        plan(s, q, budget);
}

/* ---- admission ---- */

static struct sequence *first_unheld(struct sequence *head)
{
    struct sequence *q = head->next;

    while (q != head && q->held)
        q = q->next;
    return q != head ? q : NULL;
}

/* Preempted ones come first: they are older than all that wait. */
static struct sequence *next_to_admit(struct scheduler *s)
{
    struct sequence *q = first_unheld(&s->preempted);

    return q != NULL ? q : first_unheld(&s->waiting);
}

static struct sequence *youngest_held(struct scheduler *s)
{
    for (struct sequence *q = s->running.prev; q != &s->running; q = q->prev)
        if (q->held)
            return q;
    return NULL;
}

/* A slot for one that can run, if need be from one that nobody reads. */
static bool have_slot(struct scheduler *s)
{
    struct sequence *held;

    if (s->n_free_slots > 0)
        return true;
    held = youngest_held(s);
    if (held == NULL)
        return false;
    if (s->n_steps > 0) {
        s->drain = true;
        return false;
    }
    scheduler_preempt(s, held);
    return true;
}

/* Room for all its tokens and one more, beside what running prompts will still take: admitting it
 * on less would only preempt it again. */
static bool have_pages(struct scheduler *s, const struct sequence *q)
{
    uint64_t need = sequence_pages_for(q->n_tokens) + 1, there = s->pages.n_free;
    bool alone = true;

    if (need > s->pages.n_total)
        need = s->pages.n_total;
    for (const struct sequence *r = s->running.next; r != &s->running; r = r->next) {
        if (r->held) {
            there += r->n_pages;
            continue;
        }
        need += sequence_pages_missing(r);
        alone = false;
    }
    return alone || need <= there;
}

static void plan_admissions(struct scheduler *s, uint32_t *budget, int64_t now_us)
{
    struct sequence *q;

    while (*budget > 0 && (q = next_to_admit(s)) != NULL) {
        if (!have_pages(s, q) || !have_slot(s))
            return;
        scheduler_admit(s, q, now_us);
        plan(s, q, budget);
        if (q->n_planned == 0)
            return;
        /* Bounds admissions of one-row prompts by the budget as well. */
        if (sequence_rows_left(q) == 1 && *budget > 0)
            --*budget;
    }
}

/* ---- writing it down ---- */

static void emit_rows(struct device_step *step, const struct sequence *q)
{
    for (uint32_t i = 0; i < q->n_planned; i++) {
        struct step_row *row = &step->rows[step->n_rows++];
        uint32_t position = q->n_computed + i;

        *row = (struct step_row){.position = position, .sequence = step->n_sequences};
        if (position < q->n_tokens) {
            row->id = q->tokens[position];
            row->ticket = ROW_LITERAL;
        } else {
            assert(position == q->n_tokens && q->n_pending == 1);
            row->id = (int32_t)q->pending_row;
            row->ticket = q->pending_ticket;
        }
    }
}

static void emit_sequence(struct device_step *step, const struct sequence *q)
{
    step->sequences[step->n_sequences++] =
        (struct step_sequence){.slot = q->slot,
                               .first_page = step->n_pages,
                               .n_pages = q->n_pages,
                               .output_index = sequence_n_output(q) + q->n_pending};
    for (uint32_t i = 0; i < q->n_pages; i++)
        step->pages[step->n_pages++] = q->pages[i];
}

static void emit(struct scheduled_step *t, struct sequence *q)
{
    struct scheduled_entry *e = &t->entries[t->n_entries++];
    bool wants = q->n_planned == sequence_rows_left(q) && q->max_tokens > 0;

    emit_rows(&t->step, q);
    emit_sequence(&t->step, q);
    q->n_computed += q->n_planned;
    q->n_planned = 0;
    q->n_in_flight++;
    *e = (struct scheduled_entry){.sequence = q, .n_end = q->n_computed, .want_row = UINT32_MAX};
    if (wants) {
        e->want_row = t->step.n_rows - 1;
        t->step.rows[e->want_row].want = ROW_SAMPLE;
        q->n_pending++;
    }
}

struct scheduled_step *scheduler_build(struct scheduler *s, int64_t now_us)
{
    uint32_t budget = s->cfg.prefill_rows;
    struct scheduled_step *t;

    if (s->n_steps == s->cfg.depth || s->drain)
        return NULL;
    plan_running(s, &budget);
    plan_admissions(s, &budget, now_us);
    t = &s->steps[(s->first_step + s->n_steps) % s->cfg.depth];
    t->n_entries = 0;
    t->step.n_rows = t->step.n_sequences = t->step.n_pages = 0;
    for (struct sequence *q = s->running.next; q != &s->running; q = q->next)
        if (q->n_planned > 0)
            emit(t, q);
    if (t->n_entries == 0)
        return NULL;
    s->n_steps++;
    s->n_built++;
    s->rows_max = t->n_entries > s->rows_max ? t->n_entries : s->rows_max;
    return t;
}
