#include "api/metrics_page.h"

void metrics_page_init(struct metrics_page *p, void (*build)(struct buf *b, void *arg), void *arg)
{
    pthread_mutex_init(&p->lock, NULL);
    buf_init(&p->text);
    p->built_ms = 0;
    p->build = build;
    p->arg = arg;
}

void metrics_page_dispose(struct metrics_page *p)
{
    buf_dispose(&p->text);
    pthread_mutex_destroy(&p->lock);
}

/* A clock read before another thread built the page makes it no older. */
static bool is_fresh(const struct metrics_page *p, int64_t now_ms)
{
    return !p->text.failed && p->text.len > 0 && now_ms - p->built_ms < METRICS_PAGE_MS;
}

void metrics_page_get(struct metrics_page *p, int64_t now_ms, struct buf *out)
{
    pthread_mutex_lock(&p->lock);
    if (!is_fresh(p, now_ms)) {
        buf_clear(&p->text);
        p->build(&p->text, p->arg);
        p->built_ms = now_ms;
    }
    out->failed |= p->text.failed;
    buf_append(out, p->text.data, p->text.len);
    pthread_mutex_unlock(&p->lock);
}
