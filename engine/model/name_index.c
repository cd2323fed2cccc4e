#include <string.h>
#include <xxhash.h>

#include "base/size.h"
#include "engine/model/gguf_file.h"

bool name_index_init(struct name_index *x, struct arena *a, size_t capacity)
{
    size_t slots = 8;

    while (slots < 2 * capacity)
        slots *= 2;
    *x = (struct name_index){.mask = slots - 1};
    x->names = arena_array(a, capacity, sizeof *x->names);
    x->slots = arena_array(a, slots, sizeof *x->slots);
    return x->names != NULL && x->slots != NULL;
}

/* The slot that holds the name, or the free one where it belongs. */
static size_t find_slot(const struct name_index *x, const char *name)
{
    size_t i = (size_t)XXH3_64bits(name, strlen(name)) & x->mask;

    while (x->slots[i] != 0 && strcmp(x->names[x->slots[i] - 1], name) != 0)
        i = (i + 1) & x->mask;
    return i;
}

bool name_index_add(struct name_index *x, const char *name)
{
    size_t i = find_slot(x, name);

    if (x->slots[i] != 0)
        return false;
    x->names[x->n] = name;
    x->slots[i] = (uint32_t)++x->n;
    return true;
}

bool name_index_find(const struct name_index *x, const char *name, size_t *index)
{
    size_t i = find_slot(x, name);

    if (x->slots[i] == 0)
        return false;
    *index = x->slots[i] - 1;
    return true;
}
