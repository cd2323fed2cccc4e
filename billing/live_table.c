#include "billing/live_table.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 256

void live_table_init(struct live_table *t)
{
    memset(t, 0, sizeof *t);
}

void live_table_dispose(struct live_table *t)
{
    struct live *e = live_table_next(t, NULL);

    while (e != NULL) {
        struct live *next = live_table_next(t, e);

        free(e);
        e = next;
    }
    free(t->buckets);
    live_table_init(t);
}

/* The last half of a UUIDv7 is random: no hash is needed. */
static size_t bucket_of(const struct live_table *t, const struct id *id)
{
    uint64_t h;

    memcpy(&h, id->bytes + 8, sizeof h);
    return (size_t)(h ^ h >> 32) & (t->n_buckets - 1);
}

struct live *live_table_find(const struct live_table *t, const struct id *id)
{
    if (t->n_buckets == 0)
        return NULL;
    for (struct live *e = t->buckets[bucket_of(t, id)]; e != NULL; e = e->next)
        if (id_equal(&e->admission.id, id))
            return e;
    return NULL;
}

static bool grow(struct live_table *t)
{
    struct live_table bigger = {.n_buckets = t->n_buckets == 0 ? FIRST_BUCKETS : 2 * t->n_buckets,
                                .count = t->count};

    bigger.buckets = calloc(bigger.n_buckets, sizeof *bigger.buckets);
    if (bigger.buckets == NULL)
        return false;
    for (size_t i = 0; i < t->n_buckets; i++) {
        for (struct live *e = t->buckets[i], *next; e != NULL; e = next) {
            struct live **to = &bigger.buckets[bucket_of(&bigger, &e->admission.id)];

            next = e->next;
            e->next = *to;
            *to = e;
        }
    }
    free(t->buckets);
    *t = bigger;
    return true;
}

struct live *live_table_add(struct live_table *t, const struct billing_admission *a)
{
    struct live *e = live_table_find(t, &a->id);
    struct live **to;

    if (e != NULL)
        return e;
    if (t->count == t->n_buckets && !grow(t))
        return NULL;
    e = calloc(1, sizeof *e);
    if (e == NULL)
        return NULL;
    e->admission = *a;
    e->progress.id = a->id;
    e->progress.at_us = a->admitted_at_us;
    to = &t->buckets[bucket_of(t, &a->id)];
    e->next = *to;
    *to = e;
    t->count++;
    return e;
}

void live_table_remove(struct live_table *t, struct live *e)
{
    struct live **at = &t->buckets[bucket_of(t, &e->admission.id)];

    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    t->count--;
    free(e);
}

struct live *live_table_next(const struct live_table *t, const struct live *e)
{
    size_t i = 0;

    if (e != NULL) {
        if (e->next != NULL)
            return e->next;
        i = bucket_of(t, &e->admission.id) + 1;
    }
    for (; i < t->n_buckets; i++)
        if (t->buckets[i] != NULL)
            return t->buckets[i];
    return NULL;
}
