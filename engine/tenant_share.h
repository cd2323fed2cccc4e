/* How many works each tenant has in a shared queue, so that none can fill it. Small and bounded:
 * there are never more tenants in it than works. Any thread. */
#ifndef ENGINE_TENANT_SHARE_H
#define ENGINE_TENANT_SHARE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tenant_count {
    uint64_t tenant;
    size_t n;
};

struct tenant_share {
    pthread_mutex_t lock;
    struct tenant_count *counts; /* unordered, those with n > 0; under lock */
    size_t n_counts, cap;        /* tenants at once */
    size_t most;                 /* works of one tenant */
};

MUST_CHECK enum status tenant_share_init(struct tenant_share *s, size_t cap, size_t most);
void tenant_share_dispose(struct tenant_share *s);

/* ST_OVERLOADED: the tenant has its share already, or all tenants together the whole. */
MUST_CHECK enum status tenant_share_take(struct tenant_share *s, uint64_t tenant);
void tenant_share_give_back(struct tenant_share *s, uint64_t tenant);

#endif
