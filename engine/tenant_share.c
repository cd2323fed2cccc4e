#include "engine/tenant_share.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status tenant_share_init(struct tenant_share *s, size_t cap, size_t most)
{
    memset(s, 0, sizeof *s);
    s->counts = calloc(cap, sizeof s->counts[0]);
    if (s->counts == NULL)
        return ST_NO_MEMORY;
    s->cap = cap;
    s->most = most;
    pthread_mutex_init(&s->lock, NULL);
    return ST_OK;
}

void tenant_share_dispose(struct tenant_share *s)
{
    if (s->counts == NULL)
        return;
    assert(s->n_counts == 0);
    free(s->counts);
    pthread_mutex_destroy(&s->lock);
}

static struct tenant_count *find(struct tenant_share *s, uint64_t tenant)
{
    for (size_t i = 0; i < s->n_counts; i++)
        if (s->counts[i].tenant == tenant)
            return &s->counts[i];
    return NULL;
}

static enum status take(struct tenant_share *s, uint64_t tenant)
{
    struct tenant_count *c = find(s, tenant);

    if (c != NULL && c->n >= s->most)
        return ST_OVERLOADED;
    if (c == NULL && s->n_counts == s->cap)
        return ST_OVERLOADED;
    if (c == NULL) {
        c = &s->counts[s->n_counts++];
        *c = (struct tenant_count){.tenant = tenant};
    }
    c->n++;
    return ST_OK;
}

enum status tenant_share_take(struct tenant_share *s, uint64_t tenant)
{
    enum status status;

    pthread_mutex_lock(&s->lock);
    status = take(s, tenant);
    pthread_mutex_unlock(&s->lock);
    return status;
}

void tenant_share_give_back(struct tenant_share *s, uint64_t tenant)
{
    struct tenant_count *c;

    pthread_mutex_lock(&s->lock);
    c = find(s, tenant);
    assert(c != NULL);
    if (--c->n == 0)
        *c = s->counts[--s->n_counts];
    pthread_mutex_unlock(&s->lock);
}
