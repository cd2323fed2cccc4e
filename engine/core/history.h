/* Which tokens a sequence has had, for penalties: each distinct id once, with whether the prompt
 * has it and how often the output does. Open addressing with linear probing. Its size is fixed at
 * init, so that adding a token allocates nothing. One thread at a time. */
#ifndef ENGINE_CORE_HISTORY_H
#define ENGINE_CORE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct history_entry {
    int32_t id;
    uint32_t in_prompt : 1;
    uint32_t n_output : 31;
};

struct history {
    struct history_entry *entries; /* (capacity): in order of first appearance */
    uint32_t n, capacity;
    uint32_t *table; /* (2^bits): place in entries + 1; 0: empty */
    unsigned bits;
    uint64_t key;
};

/* capacity: most distinct ids, at least 1. key: any number that clients can't know; they choose the
 * ids, and must not be able to choose ones that collide. Results don't depend on it. */
MUST_CHECK enum status history_init(struct history *h, uint32_t capacity, uint64_t key);
/* What it allocates. */
size_t history_bytes(uint32_t capacity);
void history_dispose(struct history *h); /* zeroed is fine */
void history_clear(struct history *h);
/* False, and nothing is added: full. */
MUST_CHECK bool history_add_prompt(struct history *h, int32_t id);
MUST_CHECK bool history_add_output(struct history *h, int32_t id);

#endif
