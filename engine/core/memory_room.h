/* How much memory can still be had: what engines are planned against. */
#ifndef ENGINE_CORE_MEMORY_ROOM_H
#define ENGINE_CORE_MEMORY_ROOM_H

#include <stddef.h>

#include "base/cgroup_memory.h"

struct memory_room {
    size_t available_bytes;    /* 0: unknown */
    struct cgroup_bound bound; /* which it is that leaves no more; file NULL: the whole machine */
};

/* The kernel's MemAvailable, or what `bound` leaves if that is less. Reads /proc/meminfo. */
struct memory_room memory_room_within(const struct cgroup_bound *bound);

/* "120 MiB are available", with the limit if it is one; `size` 128 holds it. */
void memory_room_text(const struct memory_room *r, char *out, size_t size);

#endif
