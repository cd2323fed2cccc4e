#include "engine/core/kv_plan.h"

#include "base/size.h"
#include "engine/core/device.h"

#define MIB ((size_t)1 << 20)

static size_t mib_up(size_t bytes)
{
    return bytes / MIB + (bytes % MIB != 0);
}

static size_t default_pages(const struct kv_request *r, size_t context_pages)
{
    size_t pages = context_pages * KV_DEFAULT_CONTEXTS, most = KV_DEFAULT_BYTES / r->page_bytes;

    pages = pages < most ? pages : most;
    return pages > context_pages ? pages : context_pages;
}

enum status kv_plan_pages(const struct kv_request *r, uint32_t *n_pages, struct reason *why)
{
    size_t context_pages = ((size_t)r->context_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    size_t pages = r->kv_bytes / r->page_bytes, bytes, need;
    char room[128];

    if (r->kv_bytes == 0)
        pages = default_pages(r, context_pages);
    if (pages < context_pages)
        return fail(why, ST_INVALID,
                    "a context of %u tokens needs %zu KV pages of %zu bytes (%zu MiB); %zu MiB "
                    "hold only %zu: give more, or a smaller context",
                    r->context_tokens, context_pages, r->page_bytes,
                    mib_up(context_pages * r->page_bytes), r->kv_bytes / MIB, pages);
    if (pages > UINT32_MAX || !size_mul(pages, r->page_bytes, &bytes) ||
        !size_add(bytes, r->other_bytes, &need))
        return fail(why, ST_INVALID, "%zu MiB of KV are more than can be addressed",
                    r->kv_bytes / MIB);
    if (r->room.available_bytes != 0 && need > r->room.available_bytes) {
        memory_room_text(&r->room, room, sizeof room);
        return fail(why, ST_NO_MEMORY,
                    "not enough memory: %zu KV pages of %zu bytes (%zu MiB) and %zu MiB beside "
                    "them, but only %s: give less KV, or a smaller context",
                    pages, r->page_bytes, mib_up(bytes), mib_up(r->other_bytes), room);
    }
    *n_pages = (uint32_t)pages;
    return ST_OK;
}
