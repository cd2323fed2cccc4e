#include "engine/core/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/core/scheduler_state.h"

/* Output of a request before any has ended; then a moving average over about as many. */
#define MEAN_OUTPUT_FIRST 128
#define MEAN_OUTPUT_OVER  16

#define RETRY_MIN_MS 1000
#define RETRY_MAX_MS 60000

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
    s->mean_output = MEAN_OUTPUT_FIRST;
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

static uint32_t n_waiting(const struct scheduler *s)
{
    return s->queue.n_waiting + s->queue.n_preempted;
}

void scheduler_set_cost(struct scheduler *s, const struct cost *cost)
{
    s->cfg.cost = *cost;
}

void scheduler_free(struct scheduler *s)
{
    if (s == NULL)
        return;
    assert(n_waiting(s) == 0 && s->n_running == 0 && s->n_steps == 0);
    for (uint32_t i = 0; i < SCHEDULER_DEPTH_MAX; i++)
        step_dispose(&s->steps[i]);
    prefix_cache_free(s->cache);
    pages_dispose(&s->pages);
    queue_dispose(&s->queue);
    free(s->free_slots);
    free(s);
}

/* ---- pages and slots ---- */

void scheduler_take_pages(struct scheduler *s, struct sequence *q, uint32_t n)
{
    if (!prefix_cache_evict(s->cache, n) || !pages_take(&s->pages, n, q->pages + q->n_pages))
        assert(!"the pages were counted");
    q->n_pages += n;
    for (struct fair_node *node = q->project_node; node != NULL; node = node->parent)
        node->n_pages += n;
}

void scheduler_drop_pages(struct scheduler *s, struct sequence *q)
{
    prefix_cache_drop(s->cache, q->n_pages, q->pages);
    for (struct fair_node *node = q->project_node; node != NULL; node = node->parent)
        node->n_pages -= q->n_pages;
    q->n_pages = 0;
}

static void give_back(struct scheduler *s, struct sequence *q)
{
    scheduler_drop_pages(s, q);
    s->free_slots[s->n_free_slots++] = q->slot;
}

static void leave_running(struct scheduler *s, struct sequence *q)
{
    sequence_unlink(&s->running, q);
    s->n_running--;
    for (struct fair_node *n = q->project_node; n != NULL; n = n->parent)
        n->n_running--;
}

/* ---- the life of a sequence ---- */

/* Of one token sampled in a full batch. */
static uint64_t token_ns(const struct scheduler *s, uint32_t position)
{
    const struct cost *c = &s->cfg.cost;

    return c->base_ns / s->cfg.max_sequences + c->logits_ns + cost_rows_ns(c, position, 1);
}

static void enter_queue(struct scheduler *s, struct sequence *q, enum sequence_state state,
                        int64_t now_us)
{
    uint32_t output = q->limit - q->n_tokens;

    output = output < s->mean_output ? output : s->mean_output;
    q->waiting_ns = cost_rows_ns(&s->cfg.cost, 0, q->n_tokens) + output * token_ns(s, q->n_tokens);
    q->state = state;
    q->waiting_since_us = now_us;
    queue_push(&s->queue, q);
}

void scheduler_preempt(struct scheduler *s, struct sequence *q)
{
    assert(q->state == SEQUENCE_RUNNING && q->n_in_flight == 0 && q->n_pending == 0);
    leave_running(s, q);
    give_back(s, q);
    q->n_computed = 0;
    q->n_planned = 0;
    s->preemptions++;
    enter_queue(s, q, SEQUENCE_PREEMPTED, s->now_us);
}

static void release(struct scheduler *s, struct sequence *q)
{
    fair_leave(q->project_node);
    free(q->tokens);
    free(q->pages);
    q->tokens = NULL;
    q->pages = NULL;
    s->events.on_release(s->arg, q);
}

/* Its memory may go before theirs. */
static void free_followers(struct sequence *q)
{
    struct sequence *f = q->project_node->waiting.first;

    for (; q->n_followers > 0; f = f->next)
        if (f->leader == q)
            sequence_leave_leader(f);
}

/* Choices of a prompt that was never computed have its leader's end: on their own they would run
 * before the caller could stop them. */
static void end_followers(struct scheduler *s, struct sequence *q, enum status status,
                          int64_t now_us)
{
    while (q->n_followers > 0) {
        struct sequence *f = q->project_node->waiting.first;

        while (f->leader != q)
            f = f->next;
        scheduler_end(s, f, status, ENGINE_FINISH_NONE, now_us);
    }
}

void scheduler_end(struct scheduler *s, struct sequence *q, enum status status,
                   enum engine_finish finish, int64_t now_us)
{
    assert(q->state != SEQUENCE_ENDED);
    if (status == ST_OK || q->prefilled)
        free_followers(q);
    else
        end_followers(s, q, status, now_us);
    sequence_leave_leader(q);
    if (q->state == SEQUENCE_RUNNING)
        leave_running(s, q);
    else
        queue_remove(&s->queue, q);
    if (q->state == SEQUENCE_RUNNING && q->n_in_flight == 0)
        give_back(s, q);
    q->state = SEQUENCE_ENDED;
    q->ended_us = now_us;
    if (status == ST_OK)
        s->mean_output =
            (s->mean_output * (MEAN_OUTPUT_OVER - 1ull) + sequence_n_output(q)) / MEAN_OUTPUT_OVER;
    s->events.on_end(s->arg, q, status, finish);
    if (q->n_in_flight == 0)
        release(s, q);
}

void scheduler_step_left(struct scheduler *s, struct sequence *q)
{
    if (q->n_in_flight > 0)
        return;
    give_back(s, q);
    release(s, q);
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
    return n_waiting(s) >= s->cfg.queue_max ||
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
    enter_queue(s, q, SEQUENCE_WAITING, now_us);
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
                                    .waiting = n_waiting(s),
                                    .pages_used = pages_used(&s->pages),
                                    .pages_total = s->pages.n_total,
                                    .rows_max = s->rows_max,
                                    .steps = s->n_built,
                                    .prompt_tokens = s->prompt_tokens,
                                    .output_tokens = s->output_tokens,
                                    .preemptions = s->preemptions,
                                    .prefix_query_tokens = s->prefix_query_tokens,
                                    .prefix_hit_tokens = s->prefix_hit_tokens,
                                    .not_finite = s->not_finite};
}

/* Those that run are taken to be half way. */
int64_t scheduler_retry_after_ms(const struct scheduler *s, uint64_t tenant)
{
    uint64_t running = (uint64_t)s->n_running * s->mean_output / 2 * token_ns(s, s->limit / 2);
    uint64_t ms = (running + queue_work_before_ns(&s->queue, tenant)) / 1000000;

    return ms < RETRY_MIN_MS ? RETRY_MIN_MS : ms > RETRY_MAX_MS ? RETRY_MAX_MS : (int64_t)ms;
}

/* ---- for tests ---- */

static bool tables_are_sound(const struct scheduler *s, uint32_t *n_running, uint64_t *n_refs)
{
    for (const struct sequence *q = s->running.first; q != NULL; q = q->next) {
        if (q->n_pages < sequence_pages_for(q->n_computed))
            return false;
        for (uint32_t i = 0; i < q->n_pages; i++)
            if (pages_state(&s->pages, q->pages[i]) != PAGE_USED)
                return false;
        *n_refs += q->n_pages;
        ++*n_running;
    }
    return true;
}

const char *scheduler_check(const struct scheduler *s)
{
    const char *of_cache = prefix_cache_check(s->cache);
    uint32_t n_running = 0, waiting = 0;
    uint64_t n_refs = 0, counted = 0, of_nodes = 0;

    if (of_cache != NULL)
        return of_cache;
    if (!tables_are_sound(s, &n_running, &n_refs))
        return "a page table names a page that is not used, or ends before its positions";
    if (n_running != s->n_running)
        return "more or fewer run than are counted";
    for (uint32_t i = 0; i < s->pages.n_total; i++)
        counted += s->pages.refs[i];
    for (uint32_t i = 0; i < PRIORITY_CLASSES; i++) {
        of_nodes += s->queue.fair.classes[i].n_pages;
        waiting += s->queue.fair.classes[i].n_waiting;
    }
    if (counted != of_nodes || n_refs > counted || (s->n_steps == 0 && n_refs != counted))
        return "references to pages that no sequence holds";
    return waiting == n_waiting(s) ? NULL : "more or fewer wait than are counted";
}
