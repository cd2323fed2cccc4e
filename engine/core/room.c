/* Who gives way. Cached pages have gone before anybody is asked (pages_available counts them).
 * docs/scheduling.md derives why two tenants can't take a place from each other back and forth. */
#include "engine/core/scheduler_state.h"

/* So many times what it costs to mend an imbalance between tenants it has to be: what exchanges
 * throw away is then at most a third of the work. */
#define WORTH 2

struct sequence *room_champion(const struct scheduler *s, int64_t now_us)
{
    struct sequence *best = NULL, *preempted = queue_oldest_preempted(&s->queue, now_us);
    uint32_t level = PRIORITY_CLASSES;

    for (struct sequence *q = s->running.first; q != NULL; q = q->next) {
        if (q->held || q->level >= level) /* the list is by age */
            continue;
        best = q;
        level = q->level;
    }
    if (preempted == NULL || best == NULL)
        return preempted != NULL ? preempted : best;
    if (queue_level(&s->queue, preempted, now_us) != level)
        return queue_level(&s->queue, preempted, now_us) < level ? preempted : best;
    return preempted->age < best->age ? preempted : best;
}

static const struct fair_node *tenant_of(const struct sequence *q)
{
    return q->project_node->parent;
}

/* What preempting v would waste at most, on its tenant's counter: all that it has computed, and a
 * page, so that what has only begun can't be exchanged step by step. */
static int64_t waste(const struct sequence *v)
{
    return (int64_t)(((uint64_t)v->n_computed + KV_PAGE_TOKENS) * FAIR_TOKEN * FAIR_WEIGHT /
                     tenant_of(v)->weight);
}

/* With n more, q's tenant would still be within its part of what its class has, and v's tenant is
 * beyond its own. */
static bool is_share_of(const struct scheduler *s, const struct sequence *q,
                        const struct sequence *v, enum resource r, uint32_t n)
{
    const struct fair_node *to = tenant_of(q), *from = tenant_of(v), *class = to->parent;

    if (r == RESOURCE_SLOTS) {
        uint64_t all = (uint64_t) class->n_running + s->n_free_slots;

        return to->n_running + n <= fair_share(to, all) && from->n_running > fair_share(from, all);
    } else {
        uint64_t all = class->n_pages + pages_available(&s->pages);

        return to->n_pages + n <= fair_share(to, all) && from->n_pages > fair_share(from, all);
    }
}

/* Waiting lifts a request in the queue; it gives the right to stop others to the champion only. */
static uint32_t right_of(const struct scheduler *s, const struct sequence *q)
{
    return q->state == SEQUENCE_RUNNING || q == s->champion ? q->level : q->priority;
}

/* v has to give its place to q. Between tenants of a class: when the imbalance is WORTH what it
 * costs to mend it, or where q's tenant is below its share and v's above, and the counters don't
 * say otherwise. */
static bool yields(const struct scheduler *s, const struct sequence *v, const struct sequence *q,
                   enum resource r, uint32_t n)
{
    int64_t lead;

    if (v == q || v->held)
        return v != q;
    if (v->level != right_of(s, q))
        return v->level > right_of(s, q);
    if (v == s->champion || q == s->champion)
        return q == s->champion;
    if (tenant_of(v) == tenant_of(q) || v->priority != q->priority)
        return false;
    lead = fair_lead(tenant_of(v), tenant_of(q));
    return lead > WORTH * waste(v) || (lead >= 0 && is_share_of(s, q, v, r, n));
}

/* Of those that run, the youngest gives way where nothing else decides. */
static bool yields_to_growth(const struct scheduler *s, const struct sequence *v,
                             const struct sequence *q)
{
    if (yields(s, v, q, RESOURCE_PAGES, 1))
        return true;
    return v->age > q->age && !yields(s, q, v, RESOURCE_PAGES, 1);
}

/* a goes before b: held ones, then of the lowest class's most over-served tenant the youngest. */
static bool is_worse(const struct sequence *a, const struct sequence *b)
{
    int order = 0;

    if (a->held != b->held)
        return a->held;
    if (a->level != b->level)
        return a->level > b->level;
    if (tenant_of(a) != tenant_of(b))
        order = fair_compare(a->project_node, b->project_node);
    return order != 0 ? order > 0 : a->age > b->age;
}

struct need {
    const struct sequence *q;
    enum resource resource;
    uint32_t n;
    bool grows; /* q runs */
};

static bool gives_way(const struct scheduler *s, const struct sequence *v, const struct need *need)
{
    return need->grows ? yields_to_growth(s, v, need->q)
                       : yields(s, v, need->q, need->resource, need->n);
}

static struct sequence *pick_victim(const struct scheduler *s, const struct need *need)
{
    struct sequence *worst = NULL;

    for (struct sequence *v = s->running.first; v != NULL; v = v->next)
        if (gives_way(s, v, need) && (worst == NULL || is_worse(v, worst)))
            worst = v;
    return worst;
}

static bool is_met(const struct scheduler *s, const struct need *need)
{
    return need->resource == RESOURCE_SLOTS ? s->n_free_slots > 0
                                            : pages_available(&s->pages) >= need->n;
}

/* All who would give way, together: nobody is preempted for a need that stays unmet. Pages that
 * they share are counted for each, so that this may promise too much, never too little. */
static bool can_be_met(const struct scheduler *s, const struct need *need)
{
    uint64_t pages = pages_available(&s->pages);

    for (const struct sequence *v = s->running.first; v != NULL; v = v->next) {
        if (!gives_way(s, v, need))
            continue;
        if (need->resource == RESOURCE_SLOTS)
            return true;
        pages += v->n_pages;
    }
    return need->resource == RESOURCE_PAGES && pages >= need->n;
}

static bool make_room(struct scheduler *s, const struct need *need)
{
    if (is_met(s, need))
        return true;
    if (!can_be_met(s, need))
        return false;
    while (!is_met(s, need)) {
        struct sequence *v = pick_victim(s, need);

        if (v == NULL)
            return false;
        if (v->n_in_flight > 0) {
            s->drain = true;
            return false;
        }
        scheduler_preempt(s, v);
    }
    return true;
}

bool room_for_slot(struct scheduler *s, const struct sequence *q)
{
    return make_room(s, &(struct need){.q = q, .resource = RESOURCE_SLOTS, .n = 1});
}

bool room_for_pages(struct scheduler *s, const struct sequence *q, uint32_t n)
{
    return make_room(s, &(struct need){.q = q, .resource = RESOURCE_PAGES, .n = n});
}

bool room_may_have_slot(const struct scheduler *s, const struct sequence *q)
{
    return s->n_free_slots > 0 ||
           can_be_met(s, &(struct need){.q = q, .resource = RESOURCE_SLOTS, .n = 1});
}

bool room_may_have_pages(const struct scheduler *s, const struct sequence *q, uint32_t n)
{
    return can_be_met(s, &(struct need){.q = q, .resource = RESOURCE_PAGES, .n = n});
}

bool room_to_grow(struct scheduler *s, const struct sequence *q)
{
    return make_room(s, &(struct need){.q = q, .resource = RESOURCE_PAGES, .n = 1, .grows = true});
}
