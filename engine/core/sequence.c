#include "engine/core/sequence.h"

#include <stddef.h>

uint32_t sequence_rows_left(const struct sequence *s)
{
    uint32_t n = s->n_tokens + s->n_pending;

    /* The token that completes max_tokens or the context is sampled but never computed. */
    if (n > s->n_prompt && n >= s->limit)
        return 0;
    return n - s->n_computed;
}

uint32_t sequence_pages_missing(const struct sequence *s)
{
    uint32_t all = sequence_pages_for(s->n_tokens + s->n_pending);

    return all > s->n_pages ? all - s->n_pages : 0;
}

void sequence_leave_leader(struct sequence *s)
{
    if (s->leader != NULL)
        s->leader->n_followers--;
    s->leader = NULL;
}

void sequence_insert_before(struct sequence_list *l, struct sequence *at, struct sequence *s)
{
    s->prev = at != NULL ? at->prev : l->last;
    s->next = at;
    *(s->prev != NULL ? &s->prev->next : &l->first) = s;
    *(at != NULL ? &at->prev : &l->last) = s;
}

void sequence_unlink(struct sequence_list *l, struct sequence *s)
{
    *(s->prev != NULL ? &s->prev->next : &l->first) = s->next;
    *(s->next != NULL ? &s->next->prev : &l->last) = s->prev;
    s->prev = s->next = NULL;
}
