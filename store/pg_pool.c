#include "store/pg.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "store/pg_private.h"

struct pg_pool {
    struct worker *worker;
    atomic_bool reachable;
    atomic_uint next; /* the connection that the next thread takes */
    unsigned n;
    struct pg *conns[]; /* one a thread; made here so that a thread can't start without one */
};

static void *take_connection(void *arg)
{
    struct pg_pool *p = arg;

    return p->conns[atomic_fetch_add(&p->next, 1)];
}

enum status pg_pool_start(const char *conninfo, unsigned n_threads, size_t capacity,
                          struct pg_pool **out)
{
    struct pg_pool *p = calloc(1, sizeof *p + n_threads * sizeof p->conns[0]);
    struct worker_config cfg = {.name = "pg",
                                .n_threads = n_threads,
                                .capacity = capacity,
                                .thread_init = take_connection,
                                .arg = p};
    enum status s = ST_OK;

    if (p == NULL)
        return ST_NO_MEMORY;
    for (; s == ST_OK && p->n < n_threads; p->n++) {
        s = pg_open_lazy(conninfo, &p->conns[p->n]);
        if (s == ST_OK)
            pg_report_to(p->conns[p->n], &p->reachable);
    }
    if (s == ST_OK)
        s = worker_start(&cfg, &p->worker);
    if (s != ST_OK) {
        pg_pool_stop(p);
        return s;
    }
    *out = p;
    return ST_OK;
}

void pg_pool_stop(struct pg_pool *p)
{
    if (p == NULL)
        return;
    worker_stop(p->worker);
    for (unsigned i = 0; i < p->n; i++)
        pg_close(p->conns[i]);
    free(p);
}

enum status pg_pool_submit(struct pg_pool *p, struct work *w)
{
    return worker_submit(p->worker, w);
}

bool pg_pool_is_reachable(const struct pg_pool *p)
{
    return atomic_load_explicit(&p->reachable, memory_order_relaxed);
}
