#include "engine/core/fair.h"

#include <assert.h>
#include <stdlib.h>

/* A class's counter is so many times finer than a tenant's, as it is divided by all their weights.
 */
#define CLASS_FINER 1024u

void fair_init(struct fair *f)
{
    *f = (struct fair){.root = {.first = &f->classes[0],
                                .last = &f->classes[PRIORITY_CLASSES - 1],
                                .n_idle = PRIORITY_CLASSES}};
    for (uint32_t i = 0; i < PRIORITY_CLASSES; i++) {
        struct fair_node *class = &f->classes[i];

        class->parent = &f->root;
        class->id = i;
        class->prev = i > 0 ? class - 1 : NULL;
        class->next = i + 1 < PRIORITY_CLASSES ? class + 1 : NULL;
    }
}

/* ---- the tree ---- */

/* Where a child that becomes ready begins, at least. */
static uint64_t active_minimum(const struct fair_node *parent)
{
    const struct fair_node *least = NULL;

    if (parent->n_ready == 0)
        return parent->level;
    for (const struct fair_node *n = parent->first; n != NULL; n = n->next)
        if (n->n_ready > 0 && (least == NULL || fair_lead(n, least) < 0))
            least = n;
    assert(least != NULL);
    return least->counter;
}

static struct fair_node *add_child(struct fair_node *parent, uint64_t id)
{
    struct fair_node *n = calloc(1, sizeof *n);

    if (n == NULL)
        return NULL;
    n->parent = parent;
    n->id = id;
    n->weight = FAIR_WEIGHT;
    n->counter = active_minimum(parent);
    n->prev = parent->last;
    if (parent->last != NULL)
        parent->last->next = n;
    else
        parent->first = n;
    parent->last = n;
    parent->n_idle++;
    return n;
}

static void free_children(struct fair_node *parent)
{
    struct fair_node *next;

    for (struct fair_node *n = parent->first; n != NULL; n = next) {
        next = n->next;
        assert(n->n_live == 0 && n->n_waiting == 0 && n->n_running == 0 && n->n_pages == 0);
        free_children(n);
        free(n);
    }
    parent->first = parent->last = NULL;
    parent->n_idle = 0;
}

static void remove_child(struct fair_node *n)
{
    struct fair_node *parent = n->parent;

    assert(n->n_live == 0 && n->n_waiting == 0 && n->n_running == 0 && n->n_pages == 0);
    assert((n->prev == NULL) == (parent->first == n));
    free_children(n);
    *(n->prev != NULL ? &n->prev->next : &parent->first) = n->next;
    *(n->next != NULL ? &n->next->prev : &parent->last) = n->prev;
    parent->n_idle--;
    free(n);
}

void fair_dispose(struct fair *f)
{
    for (uint32_t i = 0; i < PRIORITY_CLASSES; i++)
        free_children(&f->classes[i]);
}

/* A few hundred tenants at most have requests in one engine: a walk is quick. */
static struct fair_node *find(const struct fair_node *parent, uint64_t id)
{
    struct fair_node *n = parent->first;

    while (n != NULL && n->id != id)
        n = n->next;
    return n;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Everybody pays what they can of what a tenant owes. A project owes nothing. */
static void relieve(struct fair_node *tenant)
{
    struct fair_node *root = tenant->parent->parent;
    int64_t paid;

    if (tenant->saved >= 0)
        return;
    paid = least_of(-tenant->saved, (int64_t)(root->relief_rows / FAIR_RELIEF_PART));
    tenant->saved += paid;
    root->relief_rows -= (uint64_t)paid * FAIR_RELIEF_PART;
}

/* Forgets idle children that would return with what they have, and above the bound those with the
 * lowest counters. */
static void forget_idle(struct fair_node *parent)
{
    uint64_t minimum = active_minimum(parent);
    struct fair_node *next, *least;

    for (struct fair_node *n = parent->first; n != NULL; n = next) {
        next = n->next;
        if (n->n_live > 0 || (int64_t)(n->counter - minimum) > 0)
            continue;
        relieve(n);
        if (n->saved >= 0)
            remove_child(n);
    }
    while (parent->n_idle > FAIR_IDLE_MAX) {
        least = NULL;
        for (struct fair_node *n = parent->first; n != NULL; n = n->next)
            /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): remove_child took it off the list */
            if (n->n_live == 0 && (least == NULL || fair_lead(n, least) < 0))
                least = n;
        assert(least != NULL);
        remove_child(least);
    }
}

static struct fair_node *find_or_add(struct fair_node *parent, uint64_t id)
{
    struct fair_node *n = find(parent, id);

    return n != NULL ? n : add_child(parent, id);
}

/* Puts a tenant's parts into the weights of the classes where it has sequences, or takes them out:
 * around each change of one. */
static void weigh(const struct fair_node *root, uint64_t tenant, bool in)
{
    struct fair_node *nodes[PRIORITY_CLASSES];
    uint32_t n = 0;

    for (const struct fair_node *class = root->first; class != NULL; class = class->next) {
        struct fair_node *node = find(class, tenant);

        if (node != NULL && node->n_live > 0)
            nodes[n++] = node;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t part = nodes[i]->weight >= n ? nodes[i]->weight / n : 1;

        nodes[i]->parent->weight += in ? part : -part;
    }
}

static void enter(struct fair_node *n)
{
    if (n->n_live++ == 0 && n->parent != NULL)
        n->parent->n_idle--;
}

enum status fair_join(struct fair *f, const struct sequence *q, struct fair_node **out)
{
    struct fair_node *class, *tenant, *project;

    assert(q->priority < PRIORITY_CLASSES);
    class = &f->classes[q->priority];
    tenant = find_or_add(class, q->tenant);
    if (tenant == NULL)
        return ST_NO_MEMORY;
    project = find_or_add(tenant, q->project);
    if (project == NULL) {
        forget_idle(class);
        return ST_NO_MEMORY;
    }
    weigh(&f->root, q->tenant, false);
    tenant->weight = q->weight == 0 ? 1 : q->weight > FAIR_WEIGHT_MAX ? FAIR_WEIGHT_MAX : q->weight;
    for (struct fair_node *n = project; n != NULL; n = n->parent)
        enter(n);
    weigh(&f->root, q->tenant, true);
    *out = project;
    return ST_OK;
}

void fair_leave(struct fair_node *project)
{
    struct fair_node *tenant = project->parent, *class = tenant->parent;

    weigh(class->parent, tenant->id, false);
    for (struct fair_node *n = project; n != NULL; n = n->parent) {
        assert(n->n_live > 0);
        if (--n->n_live == 0 && n->parent != NULL)
            n->parent->n_idle++;
    }
    weigh(class->parent, tenant->id, true);
    if (project->n_live == 0)
        forget_idle(tenant);
    if (tenant->n_live == 0)
        forget_idle(class);
}

/* ---- counters ---- */

static void lift(struct fair_node *n)
{
    uint64_t minimum = active_minimum(n->parent);

    if ((int64_t)(n->counter - minimum) < 0)
        n->counter = minimum;
}

void fair_set_ready(struct fair_node *project, bool ready)
{
    struct fair_node *tenant = project->parent;

    if (ready == (project->n_ready > 0))
        return;
    if (!ready) {
        project->n_ready = 0;
        if (--tenant->n_ready == 0)
            tenant->parent->n_ready--;
        return;
    }
    lift(project);
    project->n_ready = 1;
    if (tenant->n_ready == 0) {
        lift(tenant);
        tenant->parent->n_ready++;
    }
    tenant->n_ready++;
}

void fair_choose(struct fair_node *project)
{
    struct fair_node *tenant = project->parent;

    tenant->level = project->counter;
    tenant->parent->level = tenant->counter;
}

static void add(struct fair_node *n, uint64_t service)
{
    struct fair_node *parent = n->parent;

    n->counter += service;
    if (parent->n_ready == 0 && (int64_t)(n->counter - parent->level) > 0)
        parent->level = n->counter;
}

void fair_charge(struct fair_node *project, uint64_t cost, uint32_t classes)
{
    const uint64_t service = cost * FAIR_TOKEN * FAIR_WEIGHT;
    struct fair_node *tenant = project->parent, *class = tenant->parent;

    add(project, cost * FAIR_TOKEN);
    add(tenant, service / tenant->weight);
    class->counter += service * CLASS_FINER / class->weight;
    for (const struct fair_node *c = class->parent->first; c != NULL; c = c->next) {
        struct fair_node *same;

        if (c == class || (classes >> c->id & 1) == 0)
            continue;
        same = find(c, tenant->id);
        if (same != NULL)
            add(same, service / same->weight);
    }
}

void fair_earn(struct fair_node *project, uint32_t n_rows)
{
    struct fair_node *tenant = project->parent, *root = tenant->parent->parent;
    const uint64_t relief_most = (uint64_t)FAIR_SAVED_MAX * FAIR_RELIEF_PART;

    tenant->saved = least_of(tenant->saved + n_rows, FAIR_SAVED_MAX);
    root->relief_rows += n_rows;
    if (root->relief_rows > relief_most)
        root->relief_rows = relief_most;
}

void fair_throw_away(struct fair_node *project, uint32_t n_rows)
{
    struct fair_node *tenant = project->parent;

    relieve(tenant);
    tenant->saved -= (int64_t)n_rows * FAIR_THROWN_PRICE;
}

uint64_t fair_owed_rows(const struct fair_node *project)
{
    const struct fair_node *tenant = project->parent;
    const struct fair_node *root = tenant->parent->parent;
    int64_t saved = tenant->saved + (int64_t)(root->relief_rows / FAIR_RELIEF_PART);

    return saved >= 0 ? 0 : ((uint64_t)-saved + FAIR_THROWN_PRICE - 1) / FAIR_THROWN_PRICE;
}

const struct fair_node *fair_tenant(const struct fair *f, uint32_t class, uint64_t tenant)
{
    return find(&f->classes[class], tenant);
}

/* One that was lifted to its brother's counter has nothing running yet, and goes first. */
static int compare(const struct fair_node *a, const struct fair_node *b)
{
    int64_t lead = fair_lead(a, b);

    assert(a->parent == b->parent);
    if (lead == 0)
        lead = (int64_t)a->n_running - (int64_t)b->n_running;
    return lead < 0 ? -1 : lead > 0;
}

int fair_compare(const struct fair_node *project_a, const struct fair_node *project_b)
{
    int by_tenant = compare(project_a->parent, project_b->parent);

    if (by_tenant != 0 || project_a->parent != project_b->parent)
        return by_tenant;
    return compare(project_a, project_b);
}

uint64_t fair_share(const struct fair_node *node, uint64_t amount)
{
    uint64_t all = 0;

    for (const struct fair_node *n = node->parent->first; n != NULL; n = n->next)
        if (n->n_live > 0)
            all += n->weight;
    return all == 0 ? amount : amount * node->weight / all;
}
