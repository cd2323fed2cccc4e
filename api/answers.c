#include "api/answers.h"

static void link_answer(struct answer_list *l, struct answer *a)
{
    a->prev = NULL;
    a->next = l->first;
    if (l->first != NULL)
        l->first->prev = a;
    l->first = a;
    atomic_fetch_add_explicit(&l->all->n, 1, memory_order_relaxed);
}

static void unlink_answer(struct answer_list *l, struct answer *a)
{
    if (a->prev != NULL)
        a->prev->next = a->next;
    else
        l->first = a->next;
    if (a->next != NULL)
        a->next->prev = a->prev;
    atomic_fetch_sub_explicit(&l->all->n, 1, memory_order_relaxed);
}

void answers_hold(struct answer_list *l, struct answer *a, size_t bytes)
{
    if (a->held == bytes)
        return;
    if (a->held == 0)
        link_answer(l, a);
    else if (bytes == 0)
        unlink_answer(l, a);
    /* Unsigned: what is less than before is taken off. */
    atomic_fetch_add_explicit(&l->all->held, bytes - a->held, memory_order_relaxed);
    a->held = bytes;
}

bool answers_are_full(const struct answers *all)
{
    return atomic_load_explicit(&all->held, memory_order_relaxed) > all->max;
}

static struct answer *largest(const struct answer_list *l)
{
    struct answer *found = NULL;

    for (struct answer *a = l->first; a != NULL; a = a->next)
        if (a->state != ANSWER_CUT && (found == NULL || a->held > found->held))
            found = a;
    return found;
}

struct answer *answers_excess(const struct answer_list *l)
{
    struct answer *a;
    size_t held, n;

    if (!answers_are_full(l->all))
        return NULL;
    held = atomic_load_explicit(&l->all->held, memory_order_relaxed);
    n = atomic_load_explicit(&l->all->n, memory_order_relaxed);
    a = largest(l);
    return a != NULL && n > 0 && a->held >= held / n ? a : NULL;
}
