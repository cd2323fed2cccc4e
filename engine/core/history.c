#include "engine/core/history.h"

#include <stdlib.h>
#include <string.h>

/* At most half of the table is in use: probes stay short. */
static unsigned table_bits(uint32_t capacity)
{
    unsigned bits = 1;

    while ((uint64_t)1 << bits < 2 * (uint64_t)capacity)
        bits++;
    return bits;
}

enum status history_init(struct history *h, uint32_t capacity, uint64_t key)
{
    *h = (struct history){.capacity = capacity, .bits = table_bits(capacity), .key = key | 1};
    h->entries = calloc(capacity, sizeof *h->entries);
    h->table = calloc((size_t)1 << h->bits, sizeof *h->table);
    if (h->entries != NULL && h->table != NULL)
        return ST_OK;
    history_dispose(h);
    return ST_NO_MEMORY;
}

size_t history_bytes(uint32_t capacity)
{
    return (size_t)capacity * sizeof(struct history_entry) +
           ((size_t)1 << table_bits(capacity)) * sizeof(uint32_t);
}

void history_dispose(struct history *h)
{
    free(h->entries);
    free(h->table);
    *h = (struct history){0};
}

void history_clear(struct history *h)
{
    h->n = 0;
    memset(h->table, 0, ((size_t)1 << h->bits) * sizeof *h->table);
}

/* The id's entry, a new one if it has none; NULL: full. Hashing is multiply-shift (Dietzfelbinger
 * et al., 1997). */
static struct history_entry *find(struct history *h, int32_t id)
{
    size_t mask = ((size_t)1 << h->bits) - 1;
    size_t at = (size_t)((h->key * (uint32_t)id) >> (64 - h->bits));

    for (; h->table[at] != 0; at = (at + 1) & mask)
        if (h->entries[h->table[at] - 1].id == id)
            return &h->entries[h->table[at] - 1];
    if (h->n == h->capacity)
        return NULL;
    h->entries[h->n] = (struct history_entry){.id = id};
    h->table[at] = ++h->n;
    return &h->entries[h->n - 1];
}

bool history_add_prompt(struct history *h, int32_t id)
{
    struct history_entry *e = find(h, id);

    if (e == NULL)
        return false;
    e->in_prompt = 1;
    return true;
}

bool history_add_output(struct history *h, int32_t id)
{
    struct history_entry *e = find(h, id);

    if (e == NULL)
        return false;
    e->n_output++;
    return true;
}
