#include "engine/text/piece_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* 16,384 slots of 32 bytes fit a second-level cache. */
#define SLOTS_MIN ((size_t)64)
#define SLOTS_MAX ((size_t)1 << 14)
/* Bytes of text for a slot: pieces have four to five on average, and half of them repeat. */
#define BYTES_PER_SLOT 8
/* What is longer hardly comes twice. */
#define PIECE_BYTES_MAX 64

enum status piece_cache_init(struct piece_cache *c, size_t len)
{
    size_t slots = SLOTS_MIN;

    while (slots < SLOTS_MAX && slots < len / BYTES_PER_SLOT)
        slots *= 2;
    c->slots = calloc(slots, sizeof *c->slots);
    c->mask = slots - 1;
    c->epoch = 1;
    return c->slots != NULL ? ST_OK : ST_NO_MEMORY;
}

void piece_cache_dispose(struct piece_cache *c)
{
    free(c->slots);
}

/* There are fewer stretches of plain text than bytes: the number can't come round within a call
 * whose text fits its limits; if it did, the table is emptied. */
void piece_cache_forget(struct piece_cache *c)
{
    if (++c->epoch != 0)
        return;
    memset(c->slots, 0, (c->mask + 1) * sizeof *c->slots);
    c->epoch = 1;
}

struct cached_piece *piece_cache_slot(struct piece_cache *c, const char *text, size_t len)
{
    return len <= PIECE_BYTES_MAX ? &c->slots[(size_t)XXH3_64bits(text, len) & c->mask] : NULL;
}

bool piece_cache_holds(const struct piece_cache *c, const struct cached_piece *slot,
                       const char *text, size_t len)
{
    return slot->epoch == c->epoch && slot->len == len && memcmp(slot->text, text, len) == 0;
}
