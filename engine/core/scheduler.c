#include "engine/core/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/core/scheduler_state.h"

static enum status step_init(struct scheduled_step *t, const struct scheduler_config *cfg)
{
    t->step.rows = calloc(scheduler_max_rows(cfg), sizeof t->step.rows[0]);
    t->step.sequences = calloc(cfg->max_sequences, sizeof t->step.sequences[0]);
    t->step.pages = calloc(cfg->n_pages, sizeof t->step.pages[0]);
    t->entries = calloc(cfg->max_sequences, sizeof t->entries[0]);
    return t->step.rows == NULL || t->step.sequences == NULL || t->step.pages == NULL ||
                   t->entries == NULL
               ? ST_NO_MEMORY
               : ST_OK;
}

static void step_dispose(struct scheduled_step *t)
{
    free(t->step.rows);
    free(t->step.sequences);
    free(t->step.pages);
    free(t->entries);
}

static enum status init(struct scheduler *s)
{
    enum status status = pages_init(&s->pages, s->cfg.n_pages);

    s->free_slots = calloc(s->cfg.max_sequences, sizeof s->free_slots[0]);
    if (s->free_slots == NULL)
        status = ST_NO_MEMORY;
    for (uint32_t i = 0; status == ST_OK && i < s->cfg.depth; i++)
        status = step_init(&s->steps[i], &s->cfg);
    if (status != ST_OK)
        return status;
    for (; s->n_free_slots < s->cfg.max_sequences; s->n_free_slots++)
        s->free_slots[s->n_free_slots] = s->cfg.max_sequences - 1 - s->n_free_slots;
    return ST_OK;
}

enum status scheduler_new(const struct scheduler_config *cfg, const struct scheduler_events *events,
                          void *arg, struct scheduler **out)
{
    struct scheduler *s = calloc(1, sizeof *s);
    uint64_t kv_tokens = (uint64_t)cfg->n_pages * KV_PAGE_TOKENS;
    enum status status;

    assert(cfg->depth >= 1 && cfg->depth <= SCHEDULER_DEPTH_MAX);
    assert(cfg->max_sequences >= 1 && cfg->prefill_rows >= 1 && cfg->n_pages >= 1);
    if (s == NULL)
        return ST_NO_MEMORY;
    s->cfg = *cfg;
    s->events = *events;
    s->arg = arg;
    s->limit = kv_tokens < cfg->max_context ? (uint32_t)kv_tokens : cfg->max_context;
    sequence_list_init(&s->waiting);
    sequence_list_init(&s->preempted);
    sequence_list_init(&s->running);
    status = init(s);
    if (status != ST_OK) {
        scheduler_free(s);
        return status;
    }
    *out = s;
    return ST_OK;
}

void scheduler_free(struct scheduler *s)
{
    if (s == NULL)
        return;
    assert(s->n_waiting == 0 && s->n_preempted == 0 && s->n_running == 0 && s->n_steps == 0);
    for (uint32_t i = 0; i < SCHEDULER_DEPTH_MAX; i++)
        step_dispose(&s->steps[i]);
    pages_dispose(&s->pages);
    free(s->free_slots);
    free(s);
}

/* ---- states ---- */

static uint32_t *count_of(struct scheduler *s, enum sequence_state state)
{
    switch (state) {
    case SEQUENCE_WAITING:
        return &s->n_waiting;
    case SEQUENCE_RUNNING:
        return &s->n_running;
    case SEQUENCE_PREEMPTED:
        return &s->n_preempted;
    case SEQUENCE_ENDED:
        break;
    }
    return NULL;
}

static void leave_list(struct scheduler *s, struct sequence *q)
{
    --*count_of(s, q->state);
    sequence_unlink(q);
}

static void enter_by_age(struct scheduler *s, struct sequence *q, struct sequence *head,
                         enum sequence_state state)
{
    struct sequence *at = head;

    while (at->prev != head && at->prev->age > q->age)
        at = at->prev;
    sequence_insert_before(at, q);
    q->state = state;
    ++*count_of(s, state);
}

/* Tenants take turns: a tenant's n-th waiting sequence comes after every other's (n-1)-th. */
static void enter_waiting(struct scheduler *s, struct sequence *q)
{
    struct sequence *at = &s->waiting;

    q->round = s->round;
    for (struct sequence *w = s->waiting.next; w != &s->waiting; w = w->next)
        if (w->tenant == q->tenant && w->round >= q->round)
            q->round = w->round + 1;
    while (at->prev != &s->waiting && at->prev->round > q->round)
        at = at->prev;
    sequence_insert_before(at, q);
    q->state = SEQUENCE_WAITING;
    s->n_waiting++;
}

static void give_back(struct scheduler *s, struct sequence *q)
{
    pages_drop(&s->pages, q->n_pages, q->pages);
    q->n_pages = 0;
    s->free_slots[s->n_free_slots++] = q->slot;
}

void scheduler_admit(struct scheduler *s, struct sequence *q, int64_t now_us)
{
    assert(s->n_free_slots > 0);
    if (q->state == SEQUENCE_WAITING) {
        q->age = s->next_age++;
        q->admitted_us = now_us;
        s->round = q->round;
    }
    leave_list(s, q);
    q->slot = s->free_slots[--s->n_free_slots];
    q->slot_is_new = true;
    enter_by_age(s, q, &s->running, SEQUENCE_RUNNING);
}

void scheduler_preempt(struct scheduler *s, struct sequence *q)
{
    assert(q->state == SEQUENCE_RUNNING && q->n_in_flight == 0 && q->n_pending == 0);
    leave_list(s, q);
    give_back(s, q);
    q->n_computed = 0;
    q->n_planned = 0;
    s->preemptions++;
    enter_by_age(s, q, &s->preempted, SEQUENCE_PREEMPTED);
}

static void release(struct scheduler *s, struct sequence *q)
{
    free(q->tokens);
    free(q->pages);
    q->tokens = NULL;
    q->pages = NULL;
    s->events.on_release(s->arg, q);
}

/* Pages and slot stay until the steps in flight that name them are done. */
static void end(struct scheduler *s, struct sequence *q, enum status status,
                enum engine_finish finish, int64_t now_us)
{
    bool has_slot = q->state == SEQUENCE_RUNNING;

    assert(q->state != SEQUENCE_ENDED);
    leave_list(s, q);
    q->state = SEQUENCE_ENDED;
    q->ended_us = now_us;
    if (has_slot && q->n_in_flight == 0)
        give_back(s, q);
    s->events.on_end(s->arg, q, status, finish);
    if (q->n_in_flight == 0)
        release(s, q);
}

/* A step that carried an ended sequence is done. */
static void step_left(struct scheduler *s, struct sequence *q)
{
    if (q->n_in_flight > 0)
        return;
    give_back(s, q);
    release(s, q);
}

/* ---- calls ---- */

static enum status allocate(struct sequence *q)
{
    size_t token_bytes, page_bytes;

    if (!size_mul(q->limit, sizeof q->tokens[0], &token_bytes) ||
        !size_mul(sequence_pages_for(q->limit), sizeof q->pages[0], &page_bytes))
        return ST_NO_MEMORY;
    q->tokens = malloc(token_bytes);
    q->pages = malloc(page_bytes);
    if (q->tokens != NULL && q->pages != NULL)
        return ST_OK;
    free(q->tokens);
    free(q->pages);
    return ST_NO_MEMORY;
}

enum status scheduler_submit(struct scheduler *s, struct sequence *q, const int32_t *prompt,
                             uint32_t n_prompt, int64_t now_us)
{
    struct sequence fresh = {.tenant = q->tenant,
                             .project = q->project,
                             .weight = q->weight,
                             .priority = q->priority,
                             .queue_deadline_us = q->queue_deadline_us,
                             .max_tokens = q->max_tokens,
                             .sampling = q->sampling,
                             .cache = q->cache,
                             .adapter = q->adapter,
                             .masked = q->masked,
                             .leader = q->leader,
                             .held = q->held,
                             .n_prompt = n_prompt,
                             .n_tokens = n_prompt,
                             .submitted_us = now_us};
    uint32_t output = q->max_tokens;
    enum status status;

    assert(n_prompt > 0);
    if (n_prompt > s->limit || (output > 0 && n_prompt == s->limit))
        return ST_TOO_LONG;
    if (s->n_waiting >= s->cfg.queue_max)
        return ST_OVERLOADED;
    fresh.limit = output < s->limit - n_prompt ? n_prompt + output : s->limit;
    status = allocate(&fresh);
    if (status != ST_OK)
        return status;
    memcpy(fresh.tokens, prompt, n_prompt * sizeof prompt[0]);
    *q = fresh;
    enter_waiting(s, q);
    return ST_OK;
}

void scheduler_cancel(struct scheduler *s, struct sequence *q, enum status status, int64_t now_us)
{
    if (q->state != SEQUENCE_ENDED)
        end(s, q, status, ENGINE_FINISH_NONE, now_us);
}

struct scheduled_step *scheduler_oldest(struct scheduler *s)
{
    return s->n_steps > 0 ? &s->steps[s->first_step] : NULL;
}

void scheduler_submitted(struct scheduler *s, struct scheduled_step *step, uint64_t ticket)
{
    (void)s;
    assert(ticket != ROW_LITERAL);
    step->ticket = ticket;
    for (uint32_t i = 0; i < step->n_entries; i++) {
        struct scheduled_entry *e = &step->entries[i];

        if (e->want_row == UINT32_MAX)
            continue;
        e->sequence->pending_ticket = ticket;
        e->sequence->pending_row = e->want_row;
    }
}

/* Steps leave in the order in which they came; only one that was never submitted may fail while an
 * older one is in flight, and that is the newest. */
static void leave_flight(struct scheduler *s, struct scheduled_step *step)
{
    assert(s->n_steps > 0);
    if (step == scheduler_oldest(s))
        s->first_step = (s->first_step + 1) % s->cfg.depth;
    else
        assert(step == &s->steps[(s->first_step + s->n_steps - 1) % s->cfg.depth]);
    s->n_steps--;
    if (s->n_steps == 0)
        s->drain = false;
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
        end(s, q, ST_OK, stop ? ENGINE_FINISH_STOP : ENGINE_FINISH_LENGTH, now_us);
}

static void apply_entry(struct scheduler *s, const struct scheduled_entry *e,
                        const struct step_result *result, const struct token_logprob *tops,
                        int64_t now_us)
{
    struct sequence *q = e->sequence;

    if (!q->prefilled && e->n_end >= q->n_prompt) {
        q->prefilled = true;
        q->prefilled_us = now_us;
        s->prompt_tokens += q->n_prompt;
    }
    if (result == NULL) {
        if (q->prefilled && q->max_tokens == 0)
            end(s, q, ST_OK, ENGINE_FINISH_LENGTH, now_us);
        return;
    }
    q->n_pending--;
    if (result->status == ST_OK) {
        const struct token_sample t = {
            .id = result->id, .logprob = result->logprob, .tops = tops, .n_tops = result->n_tops};

        take_token(s, q, &t, now_us);
        return;
    }
    q->not_finite = true;
    end(s, q, ST_INTERNAL, ENGINE_FINISH_NONE, now_us);
}

static bool results_match(const struct scheduled_step *step, const struct step_result *results,
                          uint32_t n)
{
    uint32_t r = 0;

    for (uint32_t i = 0; i < step->n_entries; i++) {
        if (step->entries[i].want_row == UINT32_MAX)
            continue;
        if (r == n || results[r].row != step->entries[i].want_row)
            return false;
        r++;
    }
    return r == n;
}

void scheduler_apply(struct scheduler *s, struct scheduled_step *step,
                     const struct step_output *output, int64_t now_us)
{
    uint32_t r = 0;

    assert(step == scheduler_oldest(s));
    if (!results_match(step, output->results, output->n)) {
        scheduler_fail(s, step, now_us);
        return;
    }
    for (uint32_t i = 0; i < step->n_entries; i++) {
        const struct scheduled_entry *e = &step->entries[i];
        const struct token_logprob *tops = output->tops + (size_t)r * TOP_LOGPROBS_MAX;
        const struct step_result *result = e->want_row != UINT32_MAX ? &output->results[r++] : NULL;

        e->sequence->n_in_flight--;
        if (e->sequence->state == SEQUENCE_ENDED)
            step_left(s, e->sequence);
        else
            apply_entry(s, e, result, tops, now_us);
    }
    leave_flight(s, step);
}

void scheduler_fail(struct scheduler *s, struct scheduled_step *step, int64_t now_us)
{
    for (uint32_t i = 0; i < step->n_entries; i++) {
        struct sequence *q = step->entries[i].sequence;

        q->n_in_flight--;
        if (q->state == SEQUENCE_ENDED)
            step_left(s, q);
        else
            end(s, q, ST_INTERNAL, ENGINE_FINISH_NONE, now_us);
    }
    leave_flight(s, step);
}

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *out)
{
    *out = (struct scheduler_stats){.running = s->n_running,
                                    .waiting = s->n_waiting + s->n_preempted,
                                    .pages_used = pages_used(&s->pages),
                                    .pages_total = s->pages.n_total,
                                    .rows_max = s->rows_max,
                                    .steps = s->n_built,
                                    .prompt_tokens = s->prompt_tokens,
                                    .output_tokens = s->output_tokens,
                                    .preemptions = s->preemptions};
}
