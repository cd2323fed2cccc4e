/* How many KV pages an engine gets: arithmetic only, said in full when it doesn't work out. */
#ifndef ENGINE_CORE_KV_PLAN_H
#define ENGINE_CORE_KV_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/memory_room.h"

/* Without a size: four contexts, or 512 MiB if that is less, but at least one context. Enough for
 * a full batch of ordinary chats on a small machine. */
#define KV_DEFAULT_CONTEXTS 4
#define KV_DEFAULT_BYTES    ((size_t)512 << 20)

struct kv_request {
    uint32_t context_tokens;
    size_t page_bytes;
    size_t kv_bytes;    /* 0: the default */
    size_t other_bytes; /* what the device allocates beside KV */
    struct memory_room room;
};

/* ST_INVALID: kv_bytes don't hold one context; ST_NO_MEMORY: more than there is. */
MUST_CHECK enum status kv_plan_pages(const struct kv_request *r, uint32_t *n_pages,
                                     struct reason *why);

#endif
