#include "engine/core/memory_room.h"

#include <stdio.h>

#include "base/size.h"

#define MIB ((size_t)1 << 20)

/* 0 where the kernel doesn't say. */
static size_t machine_bytes(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    size_t kib, bytes = 0;
    char line[128];

    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "MemAvailable: %zu kB", &kib) == 1 && size_mul(kib, 1024, &bytes))
            break;
    fclose(f);
    return bytes;
}

struct memory_room memory_room_within(const struct cgroup_bound *bound)
{
    struct memory_room r = {.available_bytes = machine_bytes()};

    if (bound->file == NULL || (r.available_bytes != 0 && r.available_bytes <= bound->free_bytes))
        return r;
    /* A full group is not an unknown one. */
    r.available_bytes = bound->free_bytes > 0 ? bound->free_bytes : 1;
    r.bound = *bound;
    return r;
}

void memory_room_text(const struct memory_room *r, char *out, size_t size)
{
    if (r->bound.file == NULL)
        snprintf(out, size, "%zu MiB are available", r->available_bytes / MIB);
    else
        snprintf(out, size,
                 "%zu MiB are available within the control group's limit of %zu MiB (%s)",
                 r->available_bytes / MIB, r->bound.limit_bytes / MIB, r->bound.file);
}
