/* Who gives way. Cached pages have gone before anybody is asked (pages_available counts them).
 * docs/scheduling.md derives how much work tenants can throw away of each other's at most. */
#include "engine/core/scheduler_state.h"

/* An imbalance between tenants is mended by preemption when it is so many times what that wastes.
 */
#define WORTH 2

/* What a request lacks. */
struct need {
    const struct sequence *q;
    enum resource resource;
    uint32_t n;
    bool grows;    /* q runs */
    uint64_t owed; /* by q's tenant before this need, whatever is thrown away for it */
};

/* By rank: held ones, classes and the champion; by balance: what tenants of a class, or classes
 * that count as the same, owe each other; q's tenant pays for it (fair_throw_away). */
enum claim { CLAIM_NONE, CLAIM_BY_RANK, CLAIM_BY_BALANCE };

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

/* What preempting v would waste at most, beside what is owed, on its tenant's counter: all that it
 * has computed, and a page, so that what has only begun can't be exchanged step by step. */
static int64_t waste(const struct sequence *v, uint64_t owed)
{
    return (int64_t)((v->n_computed + KV_PAGE_TOKENS + owed) * FAIR_TOKEN * FAIR_WEIGHT /
                     tenant_of(v)->weight);
}

/* What all below the node's parent have, and what is free. */
static uint64_t part_of(const struct scheduler *s, const struct fair_node *node,
                        enum resource resource)
{
    const struct fair_node *all = node->parent;

    return fair_share(node, resource == RESOURCE_SLOTS ? (uint64_t)all->n_running + s->n_free_slots
                                                       : all->n_pages + pages_available(&s->pages));
}

static uint64_t held_by(const struct fair_node *node, enum resource resource)
{
    return resource == RESOURCE_SLOTS ? node->n_running : node->n_pages;
}

static bool is_within(const struct scheduler *s, const struct fair_node *node,
                      const struct need *need)
{
    return held_by(node, need->resource) + need->n <= part_of(s, node, need->resource);
}

static bool is_beyond(const struct scheduler *s, const struct fair_node *node,
                      const struct need *need)
{
    return held_by(node, need->resource) > part_of(s, node, need->resource);
}

/* With n more, q's tenant would still be within its part of what its class has, and v's tenant is
 * beyond its own. */
static bool is_share_of(const struct scheduler *s, const struct sequence *v,
                        const struct need *need)
{
    return is_within(s, tenant_of(need->q), need) && is_beyond(s, tenant_of(v), need);
}

/* The same of their classes, where v's is a worse one that has aged; one sequence q's class may
 * have whatever its part is. */
static bool is_share_of_class(const struct scheduler *s, const struct sequence *v,
                              const struct need *need)
{
    const struct fair_node *to = tenant_of(need->q)->parent, *from = tenant_of(v)->parent;

    return v->priority > need->q->priority && (to->n_running == 0 || is_within(s, to, need)) &&
           is_beyond(s, from, need);
}

/* Waiting lifts a request in the queue; it gives the right to stop others to the champion only. */
static uint32_t right_of(const struct scheduler *s, const struct sequence *q)
{
    return q->state == SEQUENCE_RUNNING || q == s->champion ? q->level : q->priority;
}

/* What q's tenant owes counts as wasted as well, so that one imbalance pays for one exchange; to
 * its share it has a claim only where it owes nothing. */
static bool is_out_of_balance(const struct scheduler *s, const struct sequence *v,
                              const struct need *need)
{
    int64_t lead = fair_lead(tenant_of(v), tenant_of(need->q));

    if (v->priority != need->q->priority)
        return need->owed == 0 && is_share_of_class(s, v, need);
    if (tenant_of(v) == tenant_of(need->q))
        return false;
    return lead > WORTH * waste(v, need->owed) ||
           (lead >= 0 && need->owed == 0 && is_share_of(s, v, need));
}

static enum claim claim_on(const struct scheduler *s, const struct sequence *v,
                           const struct need *need)
{
    const struct sequence *q = need->q;
    uint32_t right = right_of(s, q);
    bool is_other_class = v->priority != q->priority;

    if (v == q)
        return CLAIM_NONE;
    if (v->held)
        return CLAIM_BY_RANK;
    if (is_other_class && v->level > right)
        return CLAIM_BY_RANK;
    if (v == s->champion)
        return CLAIM_NONE;
    if (q == s->champion)
        return is_other_class && v->level < right ? CLAIM_NONE : CLAIM_BY_RANK;
    return is_out_of_balance(s, v, need) ? CLAIM_BY_BALANCE : CLAIM_NONE;
}

/* Of those that run, the youngest gives way where nothing else decides. */
static bool is_younger(const struct scheduler *s, const struct sequence *v, const struct need *need)
{
    const struct need of_v = {
        .q = v, .resource = need->resource, .n = need->n, .owed = fair_owed_rows(v->project_node)};

    return need->grows && v->age > need->q->age && claim_on(s, need->q, &of_v) == CLAIM_NONE;
}

/* a goes before b: held ones, then of the lowest class's most over-served tenant the youngest. */
static bool is_worse(const struct sequence *a, const struct sequence *b)
{
    int order = 0;

    if (a->held != b->held)
        return a->held;
    if (a->level != b->level)
        return a->level > b->level;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (tenant_of(a) != tenant_of(b))
        order = fair_compare(a->project_node, b->project_node);
    return order != 0 ? order > 0 : a->age > b->age;
}

static bool gives_way(const struct scheduler *s, const struct sequence *v, const struct need *need)
{
    return claim_on(s, v, need) != CLAIM_NONE || is_younger(s, v, need);
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
static bool can_be_met(const struct scheduler *s, const struct need *need, bool *in_flight)
{
    uint64_t pages = pages_available(&s->pages);
    uint32_t n = 0;

    for (const struct sequence *v = s->running.first; v != NULL; v = v->next) {
        if (!gives_way(s, v, need))
            continue;
        n++;
        pages += v->n_pages;
        *in_flight = *in_flight || v->n_in_flight > 0;
    }
    return need->resource == RESOURCE_SLOTS ? n > 0 : pages >= need->n;
}

static void give_way(struct scheduler *s, struct sequence *v, const struct need *need)
{
    if (claim_on(s, v, need) == CLAIM_BY_BALANCE) {
        fair_throw_away(need->q->project_node, v->n_computed);
        s->exchanged_rows += v->n_computed;
    }
    scheduler_preempt(s, v);
}

/* All at once, when nothing of them is in flight: what the first costs would else be in the way of
 * the others. */
static bool make_room(struct scheduler *s, const struct need *need)
{
    bool in_flight = false;

    if (is_met(s, need))
        return true;
    if (!can_be_met(s, need, &in_flight))
        return false;
    if (in_flight)
        s->drain = true;
    while (!in_flight && !is_met(s, need)) {
        struct sequence *v = pick_victim(s, need);

        if (v == NULL)
            return false;
        if (v->n_in_flight > 0) {
            s->drain = true; /* now that the others gave way, it does as well */
            return false;
        }
        give_way(s, v, need);
    }
    return !in_flight;
}

static struct need need_of(const struct sequence *q, enum resource resource, uint32_t n)
{
    return (struct need){
        .q = q, .resource = resource, .n = n, .owed = fair_owed_rows(q->project_node)};
}

bool room_for_slot(struct scheduler *s, const struct sequence *q)
{
    const struct need need = need_of(q, RESOURCE_SLOTS, 1);

    return make_room(s, &need);
}

bool room_for_pages(struct scheduler *s, const struct sequence *q, uint32_t n)
{
    const struct need need = need_of(q, RESOURCE_PAGES, n);

    return make_room(s, &need);
}

bool room_may_have_slot(const struct scheduler *s, const struct sequence *q)
{
    const struct need need = need_of(q, RESOURCE_SLOTS, 1);
    bool in_flight = false;

    return s->n_free_slots > 0 || can_be_met(s, &need, &in_flight);
}

bool room_may_have_pages(const struct scheduler *s, const struct sequence *q, uint32_t n)
{
    const struct need need = need_of(q, RESOURCE_PAGES, n);
    bool in_flight = false;

    return can_be_met(s, &need, &in_flight);
}

bool room_to_grow(struct scheduler *s, const struct sequence *q)
{
    struct need need = need_of(q, RESOURCE_PAGES, 1);

    need.grows = true;
    return make_room(s, &need);
}
