#include "engine/text/token_ids.h"

#include <stdlib.h>

#include "base/size.h"

void token_ids_dispose(struct token_ids *ids)
{
    free(ids->ids);
    *ids = (struct token_ids){0};
}

static enum status grow(struct token_ids *ids)
{
    size_t cap = ids->cap > 0 ? ids->cap : 64, bytes;
    int32_t *grown;

    if (!size_mul(cap, 2, &cap) || !size_mul(cap, sizeof *grown, &bytes))
        return ST_TOO_LARGE;
    grown = realloc(ids->ids, bytes);
    if (grown == NULL)
        return ST_NO_MEMORY;
    ids->ids = grown;
    ids->cap = cap;
    return ST_OK;
}

enum status token_ids_add(struct token_ids *ids, int32_t id, size_t max_tokens)
{
    enum status s = ST_OK;

    if (ids->n >= max_tokens)
        return ST_TOO_LARGE;
    if (ids->n == ids->cap)
        s = grow(ids);
    if (s == ST_OK)
        ids->ids[ids->n++] = id;
    return s;
}

enum status token_ids_repeat(struct token_ids *ids, size_t first, size_t n, size_t max_tokens)
{
    if (ids->n > max_tokens || n > max_tokens - ids->n)
        return ST_TOO_LARGE;
    while (ids->cap - ids->n < n) {
        enum status s = grow(ids);

        if (s != ST_OK)
            return s;
    }
    for (size_t i = 0; i < n; i++)
        ids->ids[ids->n++] = ids->ids[first + i];
    return ST_OK;
}
