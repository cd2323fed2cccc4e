/* Who was served how much: virtual token counters, after Sheng et al., "Fairness in Serving Large
 * Language Models" (OSDI 2024), in a tree: the classes, their tenants, their projects. Each node
 * counts the service below it, divided by its weight; among brothers the lowest counter is served
 * first. Classes share with each other only while they take turns (queue.h): then a tenant's work
 * counts in each of them. A class has the weight of its tenants; one who is in several has a part
 * in each, so that nobody gets more for asking in more of them.
 *
 * One that has nothing to be served with doesn't bank the time: when it is ready again its counter
 * is lifted to the least of its ready brothers', or, where none is ready, to their `level`: that of
 * the brother chosen last, or the greatest that any was served to since nobody waited, as they all
 * had what they asked for. What it owes it keeps: an idle node is forgotten only when its counter
 * isn't above the one that it would return with, or, above FAIR_IDLE_MAX of them, the one with the
 * lowest.
 *
 * Rows of others that a tenant has thrown away, by taking their places, are an account of its own
 * beside the counters: what is computed for it pays for them (docs/scheduling.md).
 *
 * Integers only. Counters are compared by signed difference, so that they may wrap. Nodes live
 * while a sequence of theirs does. Belongs to the scheduler's thread; the token path allocates
 * nothing. */
#ifndef ENGINE_CORE_FAIR_H
#define ENGINE_CORE_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/sequence.h"

#define FAIR_TOKEN      1024u    /* a token's worth of a counter at the ordinary weight */
#define FAIR_WEIGHT     1000u    /* the ordinary weight */
#define FAIR_WEIGHT_MAX 1000000u /* so that a token costs at least 1 */
#define FAIR_IDLE_MAX   1024u    /* idle nodes remembered under one parent */

/* A row thrown away is paid with so many new ones of the tenant that took its place; */
#define FAIR_THROWN_PRICE 2
/* what nobody pays so, with one of so many of everybody. */
#define FAIR_RELIEF_PART 8
/* New rows that are saved up for it, at most. */
#define FAIR_SAVED_MAX 4096

struct fair_node {
    struct fair_node *parent;       /* NULL: the root, above the classes */
    struct fair_node *first, *last; /* its children, in no order */
    struct fair_node *prev, *next;  /* brothers */
    uint64_t id;                    /* of the class, tenant or project */
    uint64_t weight;                /* 1 to FAIR_WEIGHT_MAX; of a class: of its tenants, may be 0 */
    uint64_t counter;               /* service by weight; mod 2^64 */
    uint64_t level;                 /* where a child begins while none is ready */
    int64_t saved;        /* of a tenant: new rows less what it has thrown away; below 0: it owes */
    uint64_t relief_rows; /* of the root: new rows whose part has not relieved anybody yet */
    uint32_t n_ready;     /* ready children; of a project: 1 while it is ready itself */
    uint32_t n_idle;      /* children without sequences */
    uint32_t n_live, n_running;   /* sequences below it */
    uint64_t n_pages;             /* KV pages that they hold */
    struct sequence_list waiting; /* of a project: by arrival, preempted ones included */
    uint32_t n_waiting;           /* sequences below it that wait */
    uint64_t waiting_ns;          /* predicted work of those */
};

struct fair {
    struct fair_node root; /* of all counts */
    struct fair_node classes[PRIORITY_CLASSES];
};

void fair_init(struct fair *f); /* it stays where it is */
/* No sequence is left. */
void fair_dispose(struct fair *f);

/* A sequence comes: finds or makes its project's node. The tenant's weight is the newest one.
 * ST_NO_MEMORY. */
MUST_CHECK enum status fair_join(struct fair *f, const struct sequence *q, struct fair_node **out);
/* It has gone: the node may be gone as well. */
void fair_leave(struct fair_node *project);

/* A project has something that could be admitted now, or has not: the one that becomes ready is
 * lifted, and so is its tenant. */
void fair_set_ready(struct fair_node *project, bool ready);
/* Something of the project was admitted. */
void fair_choose(struct fair_node *project);
/* `cost` tokens' worth of work for the project. Its tenant is charged in its own class, and in
 * those whose bit is set in `classes`. */
void fair_charge(struct fair_node *project, uint64_t cost, uint32_t classes);

/* n rows that were never computed before, for the project. */
void fair_earn(struct fair_node *project, uint32_t n_rows);
/* n computed rows of another tenant give way to the project. */
void fair_throw_away(struct fair_node *project, uint32_t n_rows);
/* Rows thrown away for the project's tenant that nothing has paid for yet. */
uint64_t fair_owed_rows(const struct fair_node *project);

/* The tenant of a class, NULL when it has no node. */
const struct fair_node *fair_tenant(const struct fair *f, uint32_t class, uint64_t tenant);
/* What a's counter is above b's; the two are brothers. */
static inline int64_t fair_lead(const struct fair_node *a, const struct fair_node *b)
{
    return (int64_t)(a->counter - b->counter);
}
/* Below 0: a comes first. By tenant, then by project, where counters are equal by who has fewer
 * running. The two are of one class. */
int fair_compare(const struct fair_node *project_a, const struct fair_node *project_b);
/* A node's part of `amount` by weight among its brothers with sequences. */
uint64_t fair_share(const struct fair_node *node, uint64_t amount);

#endif
