/* The life of a sequence: what it holds, its place in the queue, its end. */
#include <assert.h>
#include <stdlib.h>

#include "engine/core/scheduler_state.h"

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

/* ---- in and out ---- */

void scheduler_enter_queue(struct scheduler *s, struct sequence *q, enum sequence_state state,
                           int64_t now_us)
{
    q->waiting_ns = forecast_ns(s, q);
    q->state = state;
    q->waiting_since_us = now_us - q->waited_us;
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
    scheduler_enter_queue(s, q, SEQUENCE_PREEMPTED, s->now_us);
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
        forecast_learn(s, sequence_n_output(q));
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
