#include "base/worker.h"

#include <pthread.h>
#include <stdlib.h>

struct worker {
    struct worker_config cfg;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct work *head, **tail; /* under lock, as all below */
    size_t queued;
    bool stopping;
    unsigned n_started;
    pthread_t threads[];
};

static struct work *take(struct worker *w)
{
    struct work *work;

    pthread_mutex_lock(&w->lock);
    while (w->head == NULL && !w->stopping)
        pthread_cond_wait(&w->wake, &w->lock);
    work = w->head;
    if (work != NULL) {
        w->head = work->next;
        if (w->head == NULL)
            w->tail = &w->head;
        w->queued--;
    }
    pthread_mutex_unlock(&w->lock);
    return work;
}

static void *run(void *arg)
{
    struct worker *w = arg;
    void *state = w->cfg.thread_init != NULL ? w->cfg.thread_init(w->cfg.arg) : NULL;
    struct work *work;

    while ((work = take(w)) != NULL)
        work->on_run(work, state);
    if (w->cfg.thread_dispose != NULL)
        w->cfg.thread_dispose(state);
    return NULL;
}

enum status worker_start(const struct worker_config *cfg, struct worker **out)
{
    struct worker *w = calloc(1, sizeof *w + cfg->n_threads * sizeof w->threads[0]);

    if (w == NULL)
        return ST_NO_MEMORY;
    w->cfg = *cfg;
    w->tail = &w->head;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    for (; w->n_started < cfg->n_threads; w->n_started++) {
        if (pthread_create(&w->threads[w->n_started], NULL, run, w) != 0) {
            worker_stop(w);
            return ST_NO_MEMORY;
        }
        pthread_setname_np(w->threads[w->n_started], cfg->name);
    }
    *out = w;
    return ST_OK;
}

void worker_stop(struct worker *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->n_started; i++)
        pthread_join(w->threads[i], NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

enum status worker_submit(struct worker *w, struct work *work)
{
    enum status s = ST_OVERLOADED;

    work->next = NULL;
    pthread_mutex_lock(&w->lock);
    if (!w->stopping && w->queued < w->cfg.capacity) {
        *w->tail = work;
        w->tail = &work->next;
        w->queued++;
        pthread_cond_signal(&w->wake);
        s = ST_OK;
    }
    pthread_mutex_unlock(&w->lock);
    return s;
}
