#include "engine/backend/job_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define NO_SLOT UINT32_MAX

void job_table_init(struct job_table *t)
{
    memset(t, 0, sizeof *t);
    t->first_free = NO_SLOT;
}

void job_table_dispose(struct job_table *t)
{
    assert(t->n_jobs == 0);
    free(t->slots);
    job_table_init(t);
}

static enum status grow(struct job_table *t)
{
    uint32_t n = t->n_slots == 0 ? 64 : t->n_slots * 2;
    struct job_slot *slots;
    size_t bytes;

    if (n <= t->n_slots || !size_mul(n, sizeof slots[0], &bytes))
        return ST_NO_MEMORY;
    slots = realloc(t->slots, bytes);
    if (slots == NULL)
        return ST_NO_MEMORY;
    t->slots = slots;
    while (n-- > t->n_slots) {
        slots[n] = (struct job_slot){.next_free = t->first_free};
        t->first_free = n;
    }
    t->n_slots = t->n_slots == 0 ? 64 : t->n_slots * 2;
    return ST_OK;
}

enum status job_table_add(struct job_table *t, void *job, uint64_t *number)
{
    struct job_slot *slot;
    uint32_t index;

    if (t->first_free == NO_SLOT && grow(t) != ST_OK)
        return ST_NO_MEMORY;
    index = t->first_free;
    slot = &t->slots[index];
    t->first_free = slot->next_free;
    slot->job = job;
    slot->generation++;
    t->n_jobs++;
    *number = (uint64_t)slot->generation << 32 | index;
    return ST_OK;
}

static struct job_slot *slot_of(const struct job_table *t, uint64_t number)
{
    uint32_t index = (uint32_t)number;

    if (index >= t->n_slots || t->slots[index].job == NULL ||
        t->slots[index].generation != number >> 32)
        return NULL;
    return &t->slots[index];
}

void *job_table_find(const struct job_table *t, uint64_t number)
{
    struct job_slot *slot = slot_of(t, number);

    return slot != NULL ? slot->job : NULL;
}

void job_table_remove(struct job_table *t, uint64_t number)
{
    struct job_slot *slot = slot_of(t, number);

    assert(slot != NULL);
    slot->job = NULL;
    slot->next_free = t->first_free;
    t->first_free = (uint32_t)number;
    t->n_jobs--;
}

void *job_table_next(const struct job_table *t, uint32_t *at)
{
    while (*at < t->n_slots) {
        void *job = t->slots[(*at)++].job;

        if (job != NULL)
            return job;
    }
    return NULL;
}
