#include "engine/core/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status pages_init(struct pages *p, uint32_t n_pages)
{
    memset(p, 0, sizeof *p);
    p->free = calloc(n_pages, sizeof p->free[0]);
    p->refs = calloc(n_pages, sizeof p->refs[0]);
    if (p->free == NULL || p->refs == NULL) {
        pages_dispose(p);
        return ST_NO_MEMORY;
    }
    p->n_total = p->n_free = n_pages;
    for (uint32_t i = 0; i < n_pages; i++)
        p->free[i] = n_pages - 1 - i;
    return ST_OK;
}

void pages_dispose(struct pages *p)
{
    free(p->free);
    free(p->refs);
    memset(p, 0, sizeof *p);
}

bool pages_take(struct pages *p, uint32_t n, uint32_t *out)
{
    if (n > p->n_free)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = p->free[--p->n_free];

        assert(p->refs[page] == 0);
        p->refs[page] = 1;
        out[i] = page;
    }
    return true;
}

void pages_share(struct pages *p, uint32_t page)
{
    assert(page < p->n_total && p->refs[page] > 0);
    p->refs[page]++;
}

void pages_drop(struct pages *p, uint32_t n, const uint32_t *which)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = which[i];

        assert(page < p->n_total && p->refs[page] > 0);
        if (--p->refs[page] == 0)
            p->free[p->n_free++] = page;
    }
}
