/* From waiting to running. A sequence gets a slot and, at once, pages for every token that it
 * already has: what was admitted can compute its prompt whatever happens around it. Pages that the
 * prefix cache holds are taken from there. */
#include <assert.h>

#include "engine/core/scheduler_state.h"

struct sequence *admit_candidate(struct scheduler *s, int64_t now_us)
{
    if (s->champion != NULL && s->champion->state == SEQUENCE_PREEMPTED)
        return s->champion;
    return queue_next(&s->queue, now_us);
}

/* Tokens that may come from the cache: not the last one, whose logits are wanted, and none whose
 * row has a score to give that was not given yet. */
static uint32_t cacheable_tokens(const struct sequence *q)
{
    if (q->sampling.want_prompt_logprobs && q->n_scored + 1 < q->n_prompt)
        return q->n_scored;
    return q->n_tokens - 1;
}

static void match(struct scheduler *s, struct sequence *q)
{
    assert(q->n_pages == 0);
    prefix_chain_init(&q->chain, s->cfg.prefix_cache ? q->cache : &q->domain, q->tenant);
    if (!q->uses_cache)
        return;
    q->n_pages = prefix_cache_match(s->cache, &q->chain, q->tokens, cacheable_tokens(q), q->pages);
    for (struct fair_node *n = q->project_node; n != NULL; n = n->parent)
        n->n_pages += q->n_pages;
}

/* Pages that it takes, and some that the running ones will need soon: with the last page gone it
 * would only be preempted again. */
static uint32_t pages_wanted(const struct scheduler *s, const struct sequence *q)
{
    uint32_t missing = sequence_pages_for(q->n_tokens) - q->n_pages, spare;
    uint32_t most = s->pages.n_total - q->n_pages;

    if (s->n_running == 0 || q == s->champion)
        return missing;
    spare = 1 + s->n_running / KV_PAGE_TOKENS;
    return missing + spare < most ? missing + spare : most;
}

static bool take_room(struct scheduler *s, struct sequence *q)
{
    uint32_t wanted;

    if (!room_may_have_slot(s, q) ||
        (s->blocked_arrival == q->arrival && !room_may_have_pages(s, q, s->blocked_need)))
        return false;
    match(s, q);
    wanted = pages_wanted(s, q);
    if (room_for_pages(s, q, wanted) && room_for_slot(s, q)) {
        scheduler_take_pages(s, q, sequence_pages_for(q->n_tokens) - q->n_pages);
        return true;
    }
    scheduler_drop_pages(s, q);
    s->blocked_arrival = q->arrival;
    s->blocked_need = wanted;
    return false;
}

/* What the cache gave counts once, for the prompt; also where the sequence is preempted later. */
static void count_first(struct scheduler *s, struct sequence *q, uint32_t n_cached, int64_t now_us)
{
    q->age = s->next_age++;
    q->admitted_us = now_us;
    q->cached_tokens = n_cached;
    if (!q->uses_cache || q->sampling.want_prompt_logprobs)
        return;
    s->prefix_query_tokens += q->n_prompt;
    s->prefix_hit_tokens += n_cached;
}

static void insert_by_age(struct sequence_list *l, struct sequence *q)
{
    struct sequence *before = l->last, *at = NULL;

    while (before != NULL && before->age > q->age) {
        at = before;
        before = before->prev;
    }
    sequence_insert_before(l, at, q);
}

/* What has aged doesn't pass what runs of better classes either. */
static void lift_better(struct scheduler *s, const struct sequence *q)
{
    for (struct sequence *v = s->running.first; v != NULL; v = v->next)
        if (v->priority < q->priority && v->level > q->level)
            v->level = q->level;
}

bool admit(struct scheduler *s, struct sequence *q, int64_t now_us)
{
    q->level = queue_class_level(&s->queue, q->priority, now_us);
    if (!take_room(s, q))
        return false;
    q->n_computed = q->chain.n_pages * KV_PAGE_TOKENS;
    if (q->state == SEQUENCE_WAITING)
        count_first(s, q, q->n_computed, now_us);
    q->waited_us = now_us - q->waiting_since_us;
    sequence_leave_leader(q);
    queue_take(&s->queue, q);
    q->state = SEQUENCE_RUNNING;
    q->slot = s->free_slots[--s->n_free_slots];
    q->slot_is_new = true;
    insert_by_age(&s->running, q);
    lift_better(s, q);
    s->n_running++;
    for (struct fair_node *n = q->project_node; n != NULL; n = n->parent)
        n->n_running++;
    return true;
}
