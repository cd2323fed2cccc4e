#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* Most texts and templates fit one block; larger allocations get a block of their own. */
#define BLOCK_BYTES ((size_t)16 * 1024)
#define ALIGN       16

struct arena_block {
    struct arena_block *next;
    size_t cap;
    size_t used;
    _Alignas(ALIGN) char data[];
};

void arena_init(struct arena *a, size_t limit_bytes)
{
    *a = (struct arena){.limit = limit_bytes};
}

void arena_dispose(struct arena *a)
{
    struct arena_block *b = a->blocks, *next;

    for (; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    a->blocks = NULL;
    a->used = 0;
}

static struct arena_block *block_new(size_t cap)
{
    struct arena_block *b;
    size_t total;

    if (!size_add(cap, sizeof *b, &total))
        return NULL;
    b = calloc(1, total);
    if (b != NULL)
        b->cap = cap;
    return b;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    struct arena_block *b = a->blocks;
    size_t need;
    void *p;

    if (!size_add(bytes, ALIGN - 1, &need))
        return NULL;
    need &= ~(size_t)(ALIGN - 1);
    if (a->limit != 0 && (need > a->limit || a->used > a->limit - need))
        return NULL;
    if (b == NULL || b->cap - b->used < need) {
        b = block_new(need > BLOCK_BYTES ? need : BLOCK_BYTES);
        if (b == NULL)
            return NULL;
        b->next = a->blocks;
        a->blocks = b;
    }
    p = b->data + b->used;
    b->used += need;
    a->used += need;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t bytes_each)
{
    size_t total;

    return size_mul(count, bytes_each, &total) ? arena_alloc(a, total) : NULL;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    size_t total;
    char *p;

    if (!size_add(len, 1, &total))
        return NULL;
    p = arena_alloc(a, total);
    if (p != NULL && len != 0)
        memcpy(p, s, len);
    return p;
}
