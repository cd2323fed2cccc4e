#include "engine/core/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/core/scheduler_state.h"

/* Page tables of a step: sequences may share pages, so that together they name more than there
 * are. */
static enum status step_init(struct scheduled_step *t, const struct scheduler *s)
{
    size_t n_pages;

    if (!size_mul(s->cfg.max_sequences, sequence_pages_for(s->limit), &n_pages))
        return ST_NO_MEMORY;
    t->step.rows = calloc(scheduler_max_rows(&s->cfg), sizeof t->step.rows[0]);
    t->step.sequences = calloc(s->cfg.max_sequences, sizeof t->step.sequences[0]);
    t->step.pages = calloc(n_pages, sizeof t->step.pages[0]);
    t->entries = calloc(s->cfg.max_sequences, sizeof t->entries[0]);
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
    const struct prefix_cache_config cache = {
        .tenant_share_permille = s->cfg.prefix_cache ? s->cfg.prefix_cache_permille : 0};
    enum status status = pages_init(&s->pages, s->cfg.n_pages);

    if (status == ST_OK)
        status = prefix_cache_new(&cache, &s->pages, &s->cache);
    for (uint32_t i = 0; status == ST_OK && i < s->cfg.depth; i++)
        status = step_init(&s->steps[i], s);
    if (status != ST_OK)
        return status;
    s->free_slots = calloc(s->cfg.max_sequences, sizeof s->free_slots[0]);
    if (s->free_slots == NULL)
        return ST_NO_MEMORY;
    for (; s->n_free_slots < s->cfg.max_sequences; s->n_free_slots++)
        s->free_slots[s->n_free_slots] = s->cfg.max_sequences - 1 - s->n_free_slots;
    return ST_OK;
}

void scheduler_set_cost(struct scheduler *s, const struct cost *cost)
{
    s->cfg.cost = s->cost = *cost;
    pace_init(&s->pace);
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
    scheduler_set_cost(s, &cfg->cost);
    forecast_init(s);
    s->next_arrival = 1;
    queue_init(&s->queue, cfg->age_up_us);
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
    assert(scheduler_n_waiting(s) == 0 && s->n_running == 0 && s->n_steps == 0);
    for (uint32_t i = 0; i < SCHEDULER_DEPTH_MAX; i++)
        step_dispose(&s->steps[i]);
    prefix_cache_free(s->cache);
    pages_dispose(&s->pages);
    queue_dispose(&s->queue);
    free(s->free_slots);
    free(s);
}

/* ---- submit ---- */

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

static bool is_full(const struct scheduler *s, uint64_t tenant)
{
    return scheduler_n_waiting(s) >= s->cfg.queue_max ||
           (s->cfg.tenant_queue_max > 0 &&
            queue_tenant_waiting(&s->queue, tenant) >= s->cfg.tenant_queue_max);
}

/* With the cache on, the caller's domain. With it off, one of this prompt alone: the arrival stands
 * where the salt would. */
static void choose_domain(const struct scheduler *s, struct sequence *q)
{
    struct sequence *leader = q->leader;

    if (q->cache == NULL || s->cfg.prefix_cache) {
        q->uses_cache = q->cache != NULL;
        return;
    }
    q->domain = *q->cache;
    memset(q->domain.salt, 0, sizeof q->domain.salt);
    memcpy(q->domain.salt, &q->arrival, sizeof q->arrival);
    if (leader == NULL || leader->cache == NULL)
        return;
    q->domain = leader->domain;
    q->uses_cache = leader->uses_cache = true;
}

static void join_leader(struct sequence *q)
{
    struct sequence *leader = q->leader;

    if (leader == NULL)
        return;
    assert(leader->state != SEQUENCE_ENDED && leader->project_node == q->project_node);
    leader->n_followers++;
}

static struct sequence fresh(const struct scheduler *s, const struct sequence *q, uint32_t n_prompt,
                             int64_t now_us)
{
    return (struct sequence){.tenant = q->tenant,
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
                             .arrival = s->next_arrival,
                             .age = UINT64_MAX,
                             .n_prompt = n_prompt,
                             .n_tokens = n_prompt,
                             .limit = q->max_tokens < s->limit - n_prompt ? n_prompt + q->max_tokens
                                                                          : s->limit,
                             .submitted_us = now_us};
}

enum status scheduler_submit(struct scheduler *s, struct sequence *q, const int32_t *prompt,
                             uint32_t n_prompt, int64_t now_us)
{
    struct sequence new;
    enum status status;

    assert(n_prompt > 0);
    if (n_prompt > s->limit || (q->max_tokens > 0 && n_prompt == s->limit))
        return ST_TOO_LONG;
    if (is_full(s, q->tenant))
        return ST_OVERLOADED;
    new = fresh(s, q, n_prompt, now_us);
    status = allocate(&new);
    if (status != ST_OK)
        return status;
    status = fair_join(&s->queue.fair, &new, &new.project_node);
    if (status != ST_OK) {
        free(new.tokens);
        free(new.pages);
        return status;
    }
    memcpy(new.tokens, prompt, n_prompt * sizeof prompt[0]);
    s->next_arrival++;
    choose_domain(s, &new);
    join_leader(&new);
    *q = new;
    scheduler_enter_queue(s, q, SEQUENCE_WAITING, now_us);
    return ST_OK;
}

void scheduler_cancel(struct scheduler *s, struct sequence *q, enum status status, int64_t now_us)
{
    if (q->state != SEQUENCE_ENDED)
        scheduler_end(s, q, status, ENGINE_FINISH_NONE, now_us);
}

/* ---- steps in flight ---- */

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

        if (!e->samples)
            continue;
        e->sequence->pending_ticket = ticket;
        e->sequence->pending_row = e->first_row + e->n_rows - 1;
    }
}

uint32_t scheduler_masks(struct scheduler *s, const struct scheduled_step *step, uint32_t n_words,
                         struct row_mask *masks, uint32_t *bits)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < step->n_entries; i++) {
        const struct scheduled_entry *e = &step->entries[i];
        uint32_t *own = bits + (size_t)n * n_words;

        if (!step->step.sequences[i].masked)
            continue;
        /* The device waits for a mask also where the sequence has ended meanwhile. */
        memset(own, e->sequence->state == SEQUENCE_ENDED ? 0xFF : 0, n_words * sizeof own[0]);
        if (e->sequence->state != SEQUENCE_ENDED)
            s->events.on_mask(s->arg, e->sequence, own);
        masks[n++] = (struct row_mask){.row = e->first_row + e->n_rows - 1, .bits = own};
    }
    return n;
}

/* ---- state ---- */

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *out)
{
    *out = (struct scheduler_stats){.running = s->n_running,
                                    .waiting = scheduler_n_waiting(s),
                                    .pages_used = pages_used(&s->pages),
                                    .pages_total = s->pages.n_total,
                                    .rows_max = s->rows_max,
                                    .steps = s->n_built,
                                    .prompt_tokens = s->prompt_tokens,
                                    .output_tokens = s->output_tokens,
                                    .preemptions = s->preemptions,
                                    .exchanged_rows = s->exchanged_rows,
                                    .prefix_query_tokens = s->prefix_query_tokens,
                                    .prefix_hit_tokens = s->prefix_hit_tokens,
                                    .not_finite = s->not_finite};
}
