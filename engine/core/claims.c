#include "engine/core/claims.h"

#include "engine/core/job.h"
#include "engine/core/orphans.h"

static void put_unknown(struct conn *c, const struct id *request)
{
    wire_put_settled(&c->out, &(struct wire_settled){.request = *request});
}

/* Claims are few, and their requests have mostly ended: no index is kept for them. */
static struct job *find_running(const struct conn_list *all, const struct id *request)
{
    for (uint32_t i = 0; i < all->n; i++)
        for (struct job *job = all->conns[i]->jobs; job != NULL; job = job->next)
            if (id_equal(&job->request, request))
                return job;
    return NULL;
}

static void wait_for(struct job *job, struct conn *c)
{
    if (job->claimant != NULL && job->claimant != c)
        put_unknown(job->claimant, &job->request);
    job->claimant = c;
}

static void take_one(const struct jobs *j, const struct conn_list *all, struct conn *c,
                     const struct id *request)
{
    const struct wire_settled *end = orphans_find(&j->orphans, request);
    struct job *job;

    if (end != NULL) {
        wire_put_settled(&c->out, end);
        return;
    }
    job = find_running(all, request);
    if (job != NULL)
        wait_for(job, c);
    else
        put_unknown(c, request);
}

enum status claims_take(const struct jobs *j, const struct conn_list *all, struct conn *c,
                        const struct wire_frame *f)
{
    struct wire_requests v;

    if (wire_get_claim(f, &v) != ST_OK)
        return ST_CORRUPT;
    for (uint32_t i = 0; i < v.n; i++)
        take_one(j, all, c, &v.ids[i]);
    return ST_OK;
}

enum status claims_release(struct jobs *j, const struct wire_frame *f)
{
    struct wire_requests v;

    if (wire_get_release(f, &v) != ST_OK)
        return ST_CORRUPT;
    for (uint32_t i = 0; i < v.n; i++)
        orphans_forget(&j->orphans, &v.ids[i]);
    return ST_OK;
}

void claims_drop(const struct conn_list *all, const struct conn *c)
{
    for (uint32_t i = 0; i < all->n; i++)
        for (struct job *job = all->conns[i]->jobs; job != NULL; job = job->next)
            if (job->claimant == c)
                job->claimant = NULL;
}
