#include "engine/core/orphans.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status orphans_init(struct orphans *o, uint32_t cap)
{
    const struct orphan_list empty = {.first = ORPHAN_NONE, .last = ORPHAN_NONE};

    assert(cap >= 2 && (cap & (cap - 1)) == 0);
    *o = (struct orphans){.cap = cap, .told = empty, .orphaned = empty};
    o->slots = calloc(cap, sizeof o->slots[0]);
    o->buckets = calloc(cap, sizeof o->buckets[0]);
    if (o->slots == NULL || o->buckets == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < cap; i++) {
        o->buckets[i] = ORPHAN_NONE;
        o->slots[i].age_next = i + 1 < cap ? i + 1 : ORPHAN_NONE;
    }
    return ST_OK;
}

void orphans_dispose(struct orphans *o)
{
    free(o->slots);
    free(o->buckets);
    *o = (struct orphans){0};
}

/* ---- by age ---- */

static struct orphan_list *list_of(struct orphans *o, uint32_t slot)
{
    return o->slots[slot].conn != NULL ? &o->told : &o->orphaned;
}

static void append(struct orphans *o, struct orphan_list *l, uint32_t slot)
{
    o->slots[slot].age_prev = l->last;
    o->slots[slot].age_next = ORPHAN_NONE;
    if (l->last != ORPHAN_NONE)
        o->slots[l->last].age_next = slot;
    else
        l->first = slot;
    l->last = slot;
    l->n++;
}

static void unlink_slot(struct orphans *o, struct orphan_list *l, uint32_t slot)
{
    const struct orphan *s = &o->slots[slot];

    if (s->age_prev != ORPHAN_NONE)
        o->slots[s->age_prev].age_next = s->age_next;
    else
        l->first = s->age_next;
    if (s->age_next != ORPHAN_NONE)
        o->slots[s->age_next].age_prev = s->age_prev;
    else
        l->last = s->age_prev;
    l->n--;
}

/* ---- by id ---- */

/* The last half of a UUIDv7 is random: no hash is needed. */
static uint32_t *bucket_of(const struct orphans *o, const struct id *request)
{
    uint64_t h;

    memcpy(&h, request->bytes + 8, sizeof h);
    return &o->buckets[(h ^ h >> 32) & (o->cap - 1)];
}

static uint32_t find(const struct orphans *o, const struct id *request)
{
    uint32_t slot = *bucket_of(o, request);

    while (slot != ORPHAN_NONE && !id_equal(&o->slots[slot].end.request, request))
        slot = o->slots[slot].bucket_next;
    return slot;
}

const struct wire_settled *orphans_find(const struct orphans *o, const struct id *request)
{
    uint32_t slot = find(o, request);

    return slot != ORPHAN_NONE ? &o->slots[slot].end : NULL;
}

/* ---- in and out ---- */

static void forget_slot(struct orphans *o, uint32_t slot)
{
    uint32_t *at = bucket_of(o, &o->slots[slot].end.request);

    while (*at != slot)
        at = &o->slots[*at].bucket_next;
    *at = o->slots[slot].bucket_next;
    unlink_slot(o, list_of(o, slot), slot);
    o->slots[slot].age_next = o->first_free;
    o->first_free = slot;
}

void orphans_forget(struct orphans *o, const struct id *request)
{
    uint32_t slot = find(o, request);

    if (slot != ORPHAN_NONE)
        forget_slot(o, slot);
}

static uint32_t take_slot(struct orphans *o)
{
    uint32_t slot;

    if (o->first_free == ORPHAN_NONE)
        forget_slot(o, o->told.n > o->cap / 2 ? o->told.first : o->orphaned.first);
    slot = o->first_free;
    o->first_free = o->slots[slot].age_next;
    return slot;
}

void orphans_add(struct orphans *o, const struct id *request, const struct conn *conn,
                 const struct wire_final *end)
{
    uint32_t *bucket = bucket_of(o, request);
    struct orphan *s;
    uint32_t slot;

    orphans_forget(o, request);
    slot = take_slot(o);
    s = &o->slots[slot];
    s->end = (struct wire_settled){.request = *request,
                                   .is_known = true,
                                   .prompt_tokens = end->prompt_tokens,
                                   .cached_tokens = end->cached_tokens,
                                   .output_tokens = end->output_tokens};
    s->conn = conn;
    s->bucket_next = *bucket;
    *bucket = slot;
    append(o, list_of(o, slot), slot);
}

void orphans_leave(struct orphans *o, const struct conn *conn)
{
    uint32_t next;

    for (uint32_t slot = o->told.first; slot != ORPHAN_NONE; slot = next) {
        next = o->slots[slot].age_next;
        if (o->slots[slot].conn != conn)
            continue;
        unlink_slot(o, &o->told, slot);
        o->slots[slot].conn = NULL;
        append(o, &o->orphaned, slot);
    }
}
