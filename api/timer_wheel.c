#include "api/timer_wheel.h"

#include <assert.h>
#include <stddef.h>

static void list_init(struct loop_timer *anchor)
{
    anchor->prev = anchor;
    anchor->next = anchor;
}

static void list_append(struct loop_timer *anchor, struct loop_timer *t)
{
    t->prev = anchor->prev;
    t->next = anchor;
    anchor->prev->next = t;
    anchor->prev = t;
}

static void list_remove(struct loop_timer *t)
{
    t->prev->next = t->next;
    t->next->prev = t->prev;
    t->prev = NULL;
    t->next = NULL;
}

void timer_wheel_init(struct timer_wheel *w, int64_t now_ms)
{
    for (size_t i = 0; i < WHEEL_SLOTS; i++)
        list_init(&w->slots[i]);
    w->done_ms = now_ms;
    w->earliest_ms = INT64_MAX;
}

static struct loop_timer *slot_of(struct timer_wheel *w, int64_t due_ms)
{
    return &w->slots[due_ms / WHEEL_SLOT_MS % WHEEL_SLOTS];
}

void timer_wheel_start(struct timer_wheel *w, struct loop_timer *t, int64_t now_ms,
                       int64_t delay_ms)
{
    timer_wheel_stop(t);
    t->due_ms = now_ms + (delay_ms > 0 ? delay_ms : 0);
    /* Never behind the hand: a run looks only at slots from done_ms on. */
    if (t->due_ms < w->done_ms)
        t->due_ms = w->done_ms;
    t->armed = true;
    list_append(slot_of(w, t->due_ms), t);
    if (t->due_ms < w->earliest_ms)
        w->earliest_ms = t->due_ms;
}

void timer_wheel_stop(struct loop_timer *t)
{
    if (!t->armed)
        return;
    list_remove(t);
    t->armed = false;
}

/* Moves what is due out of one slot. */
static void collect_due(struct loop_timer *slot, int64_t now_ms, struct loop_timer *due)
{
    for (struct loop_timer *t = slot->next, *next; t != slot; t = next) {
        next = t->next;
        if (t->due_ms > now_ms)
            continue;
        list_remove(t);
        list_append(due, t);
    }
}

/* The earliest due time, exact for this turn of the wheel; a later turn's timers are found when
 * their slot comes by. */
static int64_t find_earliest(const struct timer_wheel *w)
{
    int64_t first = w->done_ms / WHEEL_SLOT_MS;
    int64_t earliest = INT64_MAX;

    for (int64_t i = 0; i < WHEEL_SLOTS; i++) {
        const struct loop_timer *slot = &w->slots[(first + i) % WHEEL_SLOTS];

        for (const struct loop_timer *t = slot->next; t != slot; t = t->next) {
            assert(t != NULL); /* the lists are rings */
            if (t->due_ms < earliest)
                earliest = t->due_ms;
        }
        if (earliest < (first + i + 1) * WHEEL_SLOT_MS)
            return earliest;
    }
    return earliest;
}

void timer_wheel_run(struct timer_wheel *w, int64_t now_ms)
{
    int64_t first = w->done_ms / WHEEL_SLOT_MS;
    int64_t last = now_ms / WHEEL_SLOT_MS;
    struct loop_timer due = {0};

    if (now_ms < w->earliest_ms)
        return;
    list_init(&due);
    if (last - first >= WHEEL_SLOTS)
        first = last - WHEEL_SLOTS + 1;
    for (int64_t i = first; i <= last; i++)
        collect_due(&w->slots[i % WHEEL_SLOTS], now_ms, &due);
    if (now_ms > w->done_ms)
        w->done_ms = now_ms;
    /* A callback may stop a timer that waits here: it is in a list like any other. */
    while (due.next != &due) {
        struct loop_timer *t = due.next;

        timer_wheel_stop(t);
        t->on_timer(t->arg);
    }
    w->earliest_ms = find_earliest(w);
}

int64_t timer_wheel_wait_ms(const struct timer_wheel *w, int64_t now_ms, int64_t max_ms)
{
    int64_t wait = w->earliest_ms - now_ms;

    if (w->earliest_ms == INT64_MAX || wait > max_ms)
        return max_ms;
    return wait > 0 ? wait : 0;
}
