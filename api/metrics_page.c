#include "api/metrics_page.h"

#include <stdlib.h>

void metrics_page_init(struct metrics_page *p, void (*build)(struct buf *b, void *arg), void *arg)
{
    pthread_mutex_init(&p->building, NULL);
    pthread_mutex_init(&p->lock, NULL);
    p->last = NULL;
    p->built_ms = INT64_MIN / 2;
    p->build = build;
    p->arg = arg;
}

static void drop(struct prepared_page *page)
{
    if (page == NULL || atomic_fetch_sub(&page->n_references, 1) > 1)
        return;
    buf_dispose(&page->text);
    free(page);
}

void metrics_page_dispose(struct metrics_page *p)
{
    drop(p->last);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->building);
}

/* A clock read before another thread built the page makes it no older. */
static bool is_fresh(const struct metrics_page *p, int64_t now_ms)
{
    return now_ms - atomic_load(&p->built_ms) < METRICS_PAGE_MS;
}

static struct prepared_page *take_last(struct metrics_page *p)
{
    struct prepared_page *page;

    pthread_mutex_lock(&p->lock);
    page = p->last;
    if (page != NULL)
        atomic_fetch_add(&page->n_references, 1);
    pthread_mutex_unlock(&p->lock);
    return page;
}

static void exchange(struct metrics_page *p, struct prepared_page *page)
{
    struct prepared_page *before;

    pthread_mutex_lock(&p->lock);
    before = p->last;
    p->last = page;
    pthread_mutex_unlock(&p->lock);
    drop(before);
}

/* False: it failed, and the last page stands. By the one who has `building`. */
static bool rebuild(struct metrics_page *p, int64_t now_ms)
{
    struct prepared_page *page;

    if (is_fresh(p, now_ms)) /* by then */
        return true;
    page = calloc(1, sizeof *page);
    if (page == NULL)
        return false;
    page->n_references = 1;
    p->build(&page->text, p->arg);
    if (page->text.failed) {
        drop(page);
        return false;
    }
    exchange(p, page);
    atomic_store(&p->built_ms, now_ms);
    return true;
}

void metrics_page_get(struct metrics_page *p, int64_t now_ms, struct buf *out)
{
    struct prepared_page *page;

    if (!is_fresh(p, now_ms) && pthread_mutex_trylock(&p->building) == 0) {
        out->failed |= !rebuild(p, now_ms);
        pthread_mutex_unlock(&p->building);
    }
    page = take_last(p);
    out->failed |= page == NULL;
    if (page != NULL)
        buf_append(out, page->text.data, page->text.len);
    drop(page);
}
