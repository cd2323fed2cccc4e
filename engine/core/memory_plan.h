/* What the engines of one machine need together, against what it has: arithmetic only. */
#ifndef ENGINE_CORE_MEMORY_PLAN_H
#define ENGINE_CORE_MEMORY_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "engine/core/memory_room.h"

/* Of one engine. */
struct memory_need {
    const char *id;
    /* Of the model's file: engines of the same one share what is mapped. inode 0: a file that no
     * other engine has. */
    uint64_t device, inode;
    char revision[65]; /* struct model.revision */
    /* Weights that are computed from the file's pages. In full, though some of those pages may be
     * in memory already: they are file cache, which the room counts as free. So they count once,
     * unless another control group has read them, whose cache they are then: too much, if at all,
     * and never too little. */
    size_t mapped_bytes;
    size_t packed_bytes; /* repacked copies of the others: its own */
    size_t kv_bytes, scratch_bytes;
    size_t held_bytes; /* what its process, if it runs, has taken of the last three already */
};

struct memory_sum {
    size_t mapped_bytes; /* of each file once: the most that one of its engines reads */
    size_t packed_bytes, kv_bytes, scratch_bytes;
    size_t held_bytes;
    size_t needed_bytes; /* what is not yet taken: the sum of the above, less held_bytes */
};

/* Sums that exceed memory stay at SIZE_MAX. */
void memory_sum(const struct memory_need *needs, size_t n, struct memory_sum *out);
/* ST_NO_MEMORY: more is needed than there is room (unknown: then it fits); *why has the arithmetic.
 * `whose` begins it. */
MUST_CHECK enum status memory_check(const struct memory_need *needs, size_t n,
                                    const struct memory_room *room, const char *whose,
                                    struct reason *why);
/* A line per engine and one of the sum, in MiB. */
void memory_table(const struct memory_need *needs, size_t n, const struct memory_room *room,
                  struct buf *out);

#endif
