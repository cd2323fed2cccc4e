#include "engine/core/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status pages_init(struct pages *p, uint32_t n_pages)
{
    memset(p, 0, sizeof *p);
    p->free = calloc(n_pages, sizeof p->free[0]);
    p->refs = calloc(n_pages, sizeof p->refs[0]);
    p->kept = calloc(n_pages, sizeof p->kept[0]);
    if (p->free == NULL || p->refs == NULL || p->kept == NULL) {
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
    free(p->kept);
    memset(p, 0, sizeof *p);
}

enum page_state pages_state(const struct pages *p, uint32_t page)
{
    assert(page < p->n_total);
    if (p->refs[page] > 0)
        return PAGE_USED;
    return p->kept[page] ? PAGE_CACHED : PAGE_FREE;
}

bool pages_take(struct pages *p, uint32_t n, uint32_t *out)
{
    if (n > p->n_free)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = p->free[--p->n_free];

        assert(pages_state(p, page) == PAGE_FREE);
        p->refs[page] = 1;
        out[i] = page;
    }
    return true;
}

void pages_share(struct pages *p, uint32_t page)
{
    enum page_state state = pages_state(p, page);

    assert(state != PAGE_FREE);
    if (state == PAGE_CACHED)
        p->n_cached--;
    p->refs[page]++;
}

void pages_drop(struct pages *p, uint32_t n, const uint32_t *which)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t page = which[i];

        assert(pages_state(p, page) == PAGE_USED);
        if (--p->refs[page] > 0)
            continue;
        if (p->kept[page])
            p->n_cached++;
        else
            p->free[p->n_free++] = page;
    }
}

void pages_keep(struct pages *p, uint32_t page)
{
    assert(pages_state(p, page) == PAGE_USED && !p->kept[page]);
    p->kept[page] = true;
}

void pages_forget(struct pages *p, uint32_t page)
{
    assert(p->kept[page]);
    if (pages_state(p, page) == PAGE_CACHED) {
        p->n_cached--;
        p->free[p->n_free++] = page;
    }
    p->kept[page] = false;
}
