#include "engine/core/slot_map.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status slot_map_init(struct slot_map *m, uint32_t n)
{
    uint32_t n_slots = 2;

    memset(m, 0, sizeof *m);
    if (n == 0 || n > UINT32_C(1) << 30)
        return ST_INVALID;
    while (n_slots / 2 < n)
        n_slots *= 2;
    m->slots = malloc((size_t)n_slots * sizeof m->slots[0]);
    m->hashes = calloc(n, sizeof m->hashes[0]);
    if (m->slots == NULL || m->hashes == NULL) {
        slot_map_dispose(m);
        return ST_NO_MEMORY;
    }
    m->mask = n_slots - 1;
    for (uint32_t i = 0; i < n_slots; i++)
        m->slots[i] = SLOT_MAP_NONE;
    return ST_OK;
}

void slot_map_dispose(struct slot_map *m)
{
    free(m->slots);
    free(m->hashes);
    memset(m, 0, sizeof *m);
}

static uint32_t home(const struct slot_map *m, uint64_t hash)
{
    return (uint32_t)hash & m->mask;
}

void slot_map_insert(struct slot_map *m, uint64_t hash, uint32_t value)
{
    uint32_t at = home(m, hash);

    while (m->slots[at] != SLOT_MAP_NONE)
        at = (at + 1) & m->mask;
    m->slots[at] = value;
    m->hashes[value] = hash;
}

void slot_map_remove(struct slot_map *m, uint32_t value)
{
    uint32_t gap = home(m, m->hashes[value]), at;

    while (m->slots[gap] != value) {
        assert(m->slots[gap] != SLOT_MAP_NONE);
        gap = (gap + 1) & m->mask;
    }
    for (at = (gap + 1) & m->mask; m->slots[at] != SLOT_MAP_NONE; at = (at + 1) & m->mask) {
        uint32_t from_home = (at - home(m, m->hashes[m->slots[at]])) & m->mask;

        /* A value moves back only if the gap lies on its way from home. */
        if (from_home < ((at - gap) & m->mask))
            continue;
        m->slots[gap] = m->slots[at];
        gap = at;
    }
    m->slots[gap] = SLOT_MAP_NONE;
}

uint32_t slot_map_next(const struct slot_map *m, uint64_t hash, uint32_t *cursor)
{
    for (;;) {
        uint32_t value = m->slots[(home(m, hash) + *cursor) & m->mask];

        if (value == SLOT_MAP_NONE)
            return SLOT_MAP_NONE;
        (*cursor)++;
        if (m->hashes[value] == hash)
            return value;
    }
}
