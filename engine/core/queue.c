#include "engine/core/queue.h"

#include <assert.h>
#include <stddef.h>

/* Every project, whatever its class and tenant. */
#define FOR_EACH_PROJECT(w, p)                                                                     \
    for (uint32_t c_ = 0; c_ < PRIORITY_CLASSES; c_++)                                             \
        for (struct fair_node *t_ = (w)->fair.classes[c_].first; t_ != NULL; t_ = t_->next)        \
            for (struct fair_node *p = t_->first; p != NULL; p = p->next)

void queue_init(struct queue *w, int64_t age_up_us)
{
    *w = (struct queue){.age_up_us = age_up_us, .next_deadline_us = INT64_MAX};
    fair_init(&w->fair);
}

void queue_dispose(struct queue *w)
{
    fair_dispose(&w->fair);
}

static uint32_t *count_of(struct queue *w, const struct sequence *q)
{
    return q->state == SEQUENCE_PREEMPTED ? &w->n_preempted : &w->n_waiting;
}

void queue_push(struct queue *w, struct sequence *q)
{
    struct sequence_list *l = &q->project_node->waiting;
    struct sequence *before = l->last, *at = NULL;

    while (before != NULL && before->arrival > q->arrival) {
        at = before;
        before = before->prev;
    }
    sequence_insert_before(l, at, q);
    for (struct fair_node *n = q->project_node; n != NULL; n = n->parent) {
        n->n_waiting++;
        n->waiting_ns += q->waiting_ns;
    }
    w->work_ns += q->waiting_ns;
    ++*count_of(w, q);
    if (q->state == SEQUENCE_WAITING && q->queue_deadline_us != 0 &&
        q->queue_deadline_us < w->next_deadline_us)
        w->next_deadline_us = q->queue_deadline_us;
}

void queue_remove(struct queue *w, struct sequence *q)
{
    struct fair_node *project = q->project_node;

    assert(project != NULL);
    sequence_unlink(&project->waiting, q);
    for (struct fair_node *n = project; n != NULL; n = n->parent) {
        n->n_waiting--;
        n->waiting_ns -= q->waiting_ns;
    }
    w->work_ns -= q->waiting_ns;
    --*count_of(w, q);
    if (project->waiting.first == NULL)
        fair_set_ready(project, false);
}

uint32_t queue_level(const struct queue *w, const struct sequence *q, int64_t now_us)
{
    int64_t lifts = w->age_up_us > 0 ? (now_us - q->waiting_since_us) / w->age_up_us : 0;

    return lifts >= (int64_t)q->priority ? 0 : q->priority - (uint32_t)lifts;
}

static bool is_ready(const struct sequence *q)
{
    return !q->held && (q->leader == NULL || q->leader->prefilled);
}

static struct sequence *first_ready(const struct fair_node *project)
{
    struct sequence *q = project->waiting.first;

    while (q != NULL && !is_ready(q))
        q = q->next;
    return q;
}

/* They are by arrival: after one that was never admitted nobody has waited longer. */
static uint32_t project_level(const struct queue *w, const struct fair_node *project,
                              uint32_t level, int64_t now_us)
{
    for (const struct sequence *q = project->waiting.first; q != NULL; q = q->next) {
        if (!is_ready(q))
            continue;
        if (queue_level(w, q, now_us) < level)
            level = queue_level(w, q, now_us);
        if (q->state == SEQUENCE_WAITING)
            break;
    }
    return level;
}

/* The best of `level` and what the class's own have reached. */
static uint32_t lifted_level(const struct queue *w, const struct fair_node *class, uint32_t level,
                             int64_t now_us)
{
    for (const struct fair_node *t = class->first; t != NULL && level > 0; t = t->next)
        for (const struct fair_node *p = t->first; p != NULL; p = p->next)
            level = project_level(w, p, level, now_us);
    return level;
}

/* Else a flood of what is aged would come before a better class's requests that have just come. */
uint32_t queue_class_level(const struct queue *w, uint32_t class, int64_t now_us)
{
    uint32_t level = class;

    for (uint32_t c = class; c < PRIORITY_CLASSES; c++)
        level = lifted_level(w, &w->fair.classes[c], level, now_us);
    return level;
}

/* Those that have something ready and count as the best: no class counts as worse than a worse one.
 */
static uint32_t find_contenders(const struct queue *w, int64_t now_us)
{
    uint32_t level = PRIORITY_CLASSES, best = PRIORITY_CLASSES, bits = 0;

    for (uint32_t class = PRIORITY_CLASSES; class -- > 0;) {
        level = lifted_level(w, &w->fair.classes[class], level < class ? level : class, now_us);
        if (w->fair.classes[class].n_ready == 0)
            continue;
        bits = (level == best ? bits : 0) | 1u << class;
        best = level;
    }
    return bits;
}

/* Where their counters are equal, the one of which fewer run for its weight; else the better. */
static bool has_turn_before(const struct fair_node *a, const struct fair_node *b)
{
    int64_t lead = fair_lead(a, b);

    return lead != 0 ? lead < 0 : a->n_running * b->weight < b->n_running * a->weight;
}

/* Classes at one level take turns: so neither what is aged waits for ever behind a flood of the
 * better class, nor that one behind a long queue of what is aged. The least served goes first; one
 * that took no part meanwhile begins where the last that was chosen stands (start-time fair
 * queueing: Goyal et al., SIGCOMM 1996). NULL: nobody is ready. */
static const struct fair_node *next_class(struct queue *w, int64_t now_us)
{
    struct fair_node *best = NULL;

    w->contenders = find_contenders(w, now_us);
    for (uint32_t class = 0; class < PRIORITY_CLASSES; class ++) {
        struct fair_node *c = &w->fair.classes[class];

        if ((w->contenders >> class & 1) == 0)
            continue;
        if ((int64_t)(c->counter - w->turn) < 0)
            c->counter = w->turn;
        if (best == NULL || has_turn_before(c, best))
            best = c;
    }
    if (best != NULL)
        w->turn = best->counter;
    return best;
}

static bool is_before(const struct sequence *a, const struct sequence *b)
{
    int order = fair_compare(a->project_node, b->project_node);

    return order != 0 ? order < 0 : a->arrival < b->arrival;
}

static struct sequence *first_in_class(const struct fair_node *class)
{
    struct sequence *first = NULL;

    for (const struct fair_node *t = class->first; t != NULL; t = t->next)
        for (const struct fair_node *p = t->first; p != NULL; p = p->next) {
            struct sequence *q = first_ready(p);

            if (q != NULL && (first == NULL || is_before(q, first)))
                first = q;
        }
    return first;
}

/* In r's class q's tenant would come after r's. */
static bool is_behind(const struct queue *w, const struct sequence *q, const struct sequence *r)
{
    const struct fair_node *other = r->project_node->parent;
    const struct fair_node *own = fair_tenant(&w->fair, r->priority, q->tenant);
    int64_t lead = own != NULL && own != other ? fair_lead(own, other) : -1;

    return lead > 0 || (lead == 0 && own->n_running > other->n_running);
}

/* It is q's class's turn. A tenant that floods several classes doesn't keep waiting in one of them
 * whom it is ahead of there. */
static struct sequence *who_goes_before(const struct queue *w, struct sequence *q)
{
    for (uint32_t class = 0; class < PRIORITY_CLASSES; class ++) {
        struct sequence *r;

        if (class == q->priority || (w->contenders >> class & 1) == 0)
            continue;
        r = first_in_class(&w->fair.classes[class]);
        if (is_behind(w, q, r))
            return r;
    }
    return q;
}

struct sequence *queue_next(struct queue *w, int64_t now_us)
{
    const struct fair_node *class;

    FOR_EACH_PROJECT(w, p)
    fair_set_ready(p, first_ready(p) != NULL);
    /* Only now are all counters what they are compared by. */
    class = next_class(w, now_us);
    return class != NULL ? who_goes_before(w, first_in_class(class)) : NULL;
}

void queue_take(struct queue *w, struct sequence *q)
{
    queue_remove(w, q);
    fair_choose(q->project_node);
}

void queue_charge(struct queue *w, const struct sequence *q, uint64_t cost)
{
    bool in_turns = w->n_waiting + w->n_preempted > 0 && (w->contenders >> q->priority & 1) != 0;

    fair_charge(q->project_node, cost, in_turns ? w->contenders : 0);
}

struct sequence *queue_oldest_preempted(const struct queue *w, int64_t now_us)
{
    struct sequence *oldest = NULL;
    uint32_t best = PRIORITY_CLASSES;

    if (w->n_preempted == 0)
        return NULL;
    FOR_EACH_PROJECT(w, p)
    for (struct sequence *q = p->waiting.first; q != NULL; q = q->next) {
        uint32_t level = queue_level(w, q, now_us);

        if (q->state != SEQUENCE_PREEMPTED || q->held || level > best ||
            (oldest != NULL && level == best && oldest->age < q->age))
            continue;
        oldest = q;
        best = level;
    }
    return oldest;
}

struct sequence *queue_expired(struct queue *w, int64_t now_us)
{
    int64_t next = INT64_MAX;

    if (now_us < w->next_deadline_us)
        return NULL;
    FOR_EACH_PROJECT(w, p)
    for (struct sequence *q = p->waiting.first; q != NULL; q = q->next) {
        if (q->state != SEQUENCE_WAITING || q->queue_deadline_us == 0)
            continue;
        if (q->queue_deadline_us <= now_us)
            return q;
        next = q->queue_deadline_us < next ? q->queue_deadline_us : next;
    }
    w->next_deadline_us = next;
    return NULL;
}

uint32_t queue_tenant_waiting(const struct queue *w, uint64_t tenant)
{
    uint32_t n = 0;

    for (uint32_t class = 0; class < PRIORITY_CLASSES; class ++) {
        const struct fair_node *t = fair_tenant(&w->fair, class, tenant);

        n += t != NULL ? t->n_waiting : 0;
    }
    return n;
}

uint64_t queue_work_before_ns(const struct queue *w, uint64_t tenant)
{
    uint64_t before = 0;

    for (uint32_t class = 0; class < PRIORITY_CLASSES; class ++) {
        const struct fair_node *t = fair_tenant(&w->fair, class, tenant);
        uint64_t share = t != NULL ? fair_share(t, FAIR_WEIGHT) : 0;

        if (t != NULL && t->waiting_ns > 0)
            before += t->waiting_ns / (share > 0 ? share : 1) * FAIR_WEIGHT;
    }
    return before < w->work_ns ? before : w->work_ns;
}
