/* From a 64-bit hash to small numbers (values below n), in a table that never grows: open
 * addressing with linear probing, at most half full, and removal that closes the gap instead of
 * leaving a tombstone, so that it doesn't get slower with age. Several values may have one hash:
 * the caller compares what it hashed. */
#ifndef ENGINE_CORE_SLOT_MAP_H
#define ENGINE_CORE_SLOT_MAP_H

#include <stdint.h>

#include "base/status.h"

#define SLOT_MAP_NONE UINT32_MAX

struct slot_map {
    uint32_t mask;    /* slots - 1, slots a power of two */
    uint32_t *slots;  /* values, or SLOT_MAP_NONE */
    uint64_t *hashes; /* (n), of each value that is in */
};

/* For values below n <= 2^30. ST_INVALID: n is 0 or above; ST_NO_MEMORY. */
MUST_CHECK enum status slot_map_init(struct slot_map *m, uint32_t n);
void slot_map_dispose(struct slot_map *m);

/* The value is not in. */
void slot_map_insert(struct slot_map *m, uint64_t hash, uint32_t value);
/* The value is in. */
void slot_map_remove(struct slot_map *m, uint32_t value);

/* Values with this hash, one at a call, then SLOT_MAP_NONE. *cursor begins as 0; the map doesn't
 * change meanwhile. */
uint32_t slot_map_next(const struct slot_map *m, uint64_t hash, uint32_t *cursor);

#endif
