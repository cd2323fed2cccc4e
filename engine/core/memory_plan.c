#include "engine/core/memory_plan.h"

#include <stdbool.h>
#include <string.h>

#include "base/size.h"

#define MIB ((size_t)1 << 20)

static void add(size_t *sum, size_t bytes)
{
    if (!size_add(*sum, bytes, sum))
        *sum = SIZE_MAX;
}

static size_t mib_up(size_t bytes)
{
    return bytes / MIB + (bytes % MIB != 0);
}

static bool share(const struct memory_need *a, const struct memory_need *b)
{
    if (a == b)
        return true;
    return a->inode != 0 && a->device == b->device && a->inode == b->inode;
}

/* The most that an engine of the same file maps; 0 where an earlier engine stands for the file. */
static size_t mapped_once(const struct memory_need *needs, size_t n, size_t at)
{
    size_t most = 0;

    for (size_t i = 0; i < n; i++) {
        if (!share(&needs[i], &needs[at]))
            continue;
        if (i < at)
            return 0;
        if (needs[i].mapped_bytes > most)
            most = needs[i].mapped_bytes;
    }
    return most;
}

static size_t own_bytes(const struct memory_need *m)
{
    size_t sum = m->packed_bytes;

    add(&sum, m->kv_bytes);
    add(&sum, m->scratch_bytes);
    return sum;
}

static size_t held_of(const struct memory_need *m)
{
    size_t own = own_bytes(m);

    return m->held_bytes < own ? m->held_bytes : own;
}

void memory_sum(const struct memory_need *needs, size_t n, struct memory_sum *out)
{
    *out = (struct memory_sum){0};
    for (size_t i = 0; i < n; i++) {
        size_t mapped = mapped_once(needs, n, i);

        add(&out->mapped_bytes, mapped);
        add(&out->packed_bytes, needs[i].packed_bytes);
        add(&out->kv_bytes, needs[i].kv_bytes);
        add(&out->scratch_bytes, needs[i].scratch_bytes);
        add(&out->held_bytes, held_of(&needs[i]));
        add(&out->needed_bytes, mapped);
        add(&out->needed_bytes, own_bytes(&needs[i]) - held_of(&needs[i]));
    }
}

enum status memory_check(const struct memory_need *needs, size_t n, const struct memory_room *room,
                         const char *whose, struct reason *why)
{
    struct memory_sum s;
    char text[128];

    memory_sum(needs, n, &s);
    if (room->available_bytes == 0 || s.needed_bytes <= room->available_bytes)
        return ST_OK;
    memory_room_text(room, text, sizeof text);
    return fail(
        why, ST_NO_MEMORY,
        "not enough memory for %.95s: weights %zu + repacked weights %zu + KV %zu + buffers "
        "%zu - taken already %zu = %zu MiB, but only %s: give less KV, "
        "smaller contexts or fewer models",
        whose, mib_up(s.mapped_bytes), mib_up(s.packed_bytes), mib_up(s.kv_bytes),
        mib_up(s.scratch_bytes), s.held_bytes / MIB, mib_up(s.needed_bytes), text);
}

/* ---- for people ---- */

static void put_line(struct buf *out, const char *name, const struct memory_sum *s)
{
    buf_printf(out, "%-32.95s %10zu %10zu %10zu %10zu %10zu %10zu\n", name, mib_up(s->mapped_bytes),
               mib_up(s->packed_bytes), mib_up(s->kv_bytes), mib_up(s->scratch_bytes),
               s->held_bytes / MIB, mib_up(s->needed_bytes));
}

void memory_table(const struct memory_need *needs, size_t n, const struct memory_room *room,
                  struct buf *out)
{
    struct memory_sum s;

    buf_printf(out, "%-32s %10s %10s %10s %10s %10s %10s\n", "MiB", "weights", "repacked", "KV",
               "buffers", "taken", "needed");
    for (size_t i = 0; i < n; i++) {
        memory_sum(&needs[i], 1, &s);
        put_line(out, needs[i].id, &s);
    }
    memory_sum(needs, n, &s);
    put_line(out, "together (a file's weights once)", &s);
    if (room->available_bytes == 0)
        return;
    buf_printf(out, "%-32s %65zu\n", "available", room->available_bytes / MIB);
    if (room->bound.file != NULL)
        buf_printf(out, "%-32s %65zu   (%s)\n", "within the control group's limit",
                   room->bound.limit_bytes / MIB, room->bound.file);
}
