/* For tests: whether the scheduler's counts agree with what it holds. */
#include "engine/core/scheduler_state.h"

static bool tables_are_sound(const struct scheduler *s, uint32_t *n_running, uint64_t *n_refs)
{
    for (const struct sequence *q = s->running.first; q != NULL; q = q->next) {
        if (q->n_pages < sequence_pages_for(q->n_computed))
            return false;
        for (uint32_t i = 0; i < q->n_pages; i++)
            if (pages_state(&s->pages, q->pages[i]) != PAGE_USED)
                return false;
        *n_refs += q->n_pages;
        ++*n_running;
    }
    return true;
}

const char *scheduler_check(const struct scheduler *s)
{
    const char *of_cache = prefix_cache_check(s->cache);
    uint32_t n_running = 0, waiting = 0;
    uint64_t n_refs = 0, counted = 0, of_nodes = 0;

    if (of_cache != NULL)
        return of_cache;
    if (!tables_are_sound(s, &n_running, &n_refs))
        return "a page table names a page that is not used, or ends before its positions";
    if (n_running != s->n_running)
        return "more or fewer run than are counted";
    for (uint32_t i = 0; i < s->pages.n_total; i++)
        counted += s->pages.refs[i];
    for (uint32_t i = 0; i < PRIORITY_CLASSES; i++) {
        const struct fair_node *class = &s->queue.fair.classes[i];

        of_nodes += class->n_pages;
        waiting += class->n_waiting;
        if ((class->weight > 0) != (class->n_live > 0))
            return "a class has not the weight of its tenants";
    }
    if (counted != of_nodes || n_refs > counted || (s->n_steps == 0 && n_refs != counted))
        return "references to pages that no sequence holds";
    return waiting == scheduler_n_waiting(s) ? NULL : "more or fewer wait than are counted";
}
