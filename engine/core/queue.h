/* The requests that wait, preempted ones included, in the projects of the fair tree, and which of
 * them is next: of the class that comes first after aging, by the counters of tenant and project,
 * then by arrival. Aging is between classes only, and lifts all of a class with the one that has
 * waited longest, beside the better ones and never past them: within a class a long queue is no
 * merit. Classes that count as the same take turns, by the work that is done for each and the
 * weight of its tenants. Belongs to the scheduler's thread. */
#ifndef ENGINE_CORE_QUEUE_H
#define ENGINE_CORE_QUEUE_H

#include <stdint.h>

#include "engine/core/fair.h"
#include "engine/core/sequence.h"

struct queue {
    struct fair fair;
    int64_t age_up_us; /* 0: never */
    uint32_t n_waiting, n_preempted;
    uint32_t contenders;      /* bits of the classes that took turns when queue_next looked last */
    uint64_t turn;            /* the counter of the class that it chose */
    uint64_t work_ns;         /* predicted, of all that wait */
    int64_t next_deadline_us; /* of the waiting ones, at the earliest; INT64_MAX: none */
};

void queue_init(struct queue *w, int64_t age_up_us);
void queue_dispose(struct queue *w);

/* Its state, SEQUENCE_WAITING or _PREEMPTED, says what it waits as; waiting_ns is filled. */
void queue_push(struct queue *w, struct sequence *q);
void queue_remove(struct queue *w, struct sequence *q);

/* Its class by its own wait: every age_up_us lifts it by one. */
uint32_t queue_level(const struct queue *w, const struct sequence *q, int64_t now_us);
/* What all of a class count as: the best of queue_level among those of it, and of worse ones, that
 * could be admitted, or the class itself. */
uint32_t queue_class_level(const struct queue *w, uint32_t class, int64_t now_us);
/* The next one that is neither held nor waits for its leader; NULL: none. Lifts the counters of
 * those that have become ready. */
struct sequence *queue_next(struct queue *w, int64_t now_us);
/* queue_remove of one that is admitted. */
void queue_take(struct queue *w, struct sequence *q);
/* `cost` tokens' worth of work for it: where its class takes turns, for its tenant in all that do.
 */
void queue_charge(struct queue *w, const struct sequence *q, uint64_t cost);
/* The oldest by first admission of the preempted ones that are not held, of the best class. */
struct sequence *queue_oldest_preempted(const struct queue *w, int64_t now_us);
/* One that has never been admitted and whose deadline has passed; NULL: none. */
struct sequence *queue_expired(struct queue *w, int64_t now_us);

/* Of a tenant, all classes together. */
uint32_t queue_tenant_waiting(const struct queue *w, uint64_t tenant);
/* Predicted work that is served before a further request of the tenant would be: all that waits,
 * or less, where its own at its share of the speed takes less. */
uint64_t queue_work_before_ns(const struct queue *w, uint64_t tenant);

#endif
