#include "auth/directory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Made-up ids: kept a second, and a quarter as many as keys. */
#define ABSENT_SHARE 4
#define LOADING_MAX  256

enum status directory_init(struct directory *d, size_t max, uint64_t seed)
{
    size_t n_buckets = 16;

    memset(d, 0, sizeof *d);
    while (n_buckets < max)
        n_buckets *= 2;
    d->buckets = calloc(n_buckets, sizeof d->buckets[0]);
    if (d->buckets == NULL)
        return ST_NO_MEMORY;
    d->mask = n_buckets - 1;
    d->seed = seed;
    d->lists[ENTRY_LOADING].max = LOADING_MAX;
    d->lists[ENTRY_PRESENT].max = max;
    d->lists[ENTRY_ABSENT].max = max / ABSENT_SHARE + 1;
    return ST_OK;
}

void directory_dispose(struct directory *d)
{
    for (size_t i = 0; i < sizeof d->lists / sizeof d->lists[0]; i++)
        while (d->lists[i].newest != NULL)
            directory_remove(d, d->lists[i].newest);
    free(d->buckets);
    d->buckets = NULL;
}

/* ---- lists and buckets ---- */

static void list_push(struct directory *d, struct directory_entry *e)
{
    struct directory_list *l = &d->lists[e->state];

    e->newer = NULL;
    e->older = l->newest;
    if (l->newest != NULL)
        l->newest->newer = e;
    else
        l->oldest = e;
    l->newest = e;
    l->n++;
}

static void list_unlink(struct directory *d, struct directory_entry *e)
{
    struct directory_list *l = &d->lists[e->state];

    *(e->newer != NULL ? &e->newer->older : &l->newest) = e->older;
    *(e->older != NULL ? &e->older->newer : &l->oldest) = e->newer;
    l->n--;
}

static struct directory_entry **bucket_of(struct directory *d, const char *public_id)
{
    return &d->buckets[XXH3_64bits_withSeed(public_id, strlen(public_id), d->seed) & d->mask];
}

static struct directory_entry *find(struct directory *d, const char *public_id)
{
    struct directory_entry *e = *bucket_of(d, public_id);

    while (e != NULL && strcmp(e->public_id, public_id) != 0)
        e = e->next_in_bucket;
    return e;
}

struct directory_entry *directory_find(struct directory *d, const char *public_id)
{
    struct directory_entry *e = find(d, public_id);

    if (e != NULL) {
        list_unlink(d, e);
        list_push(d, e);
    }
    return e;
}

void directory_remove(struct directory *d, struct directory_entry *e)
{
    struct directory_entry **at = bucket_of(d, e->public_id);

    while (*at != e)
        at = &(*at)->next_in_bucket;
    *at = e->next_in_bucket;
    list_unlink(d, e);
    free(e);
}

/* ---- a lookup's life ---- */

struct directory_entry *directory_start(struct directory *d, const char *public_id)
{
    struct directory_entry **bucket = bucket_of(d, public_id);
    struct directory_entry *e;

    assert(strlen(public_id) < sizeof e->public_id);
    if (d->lists[ENTRY_LOADING].n >= d->lists[ENTRY_LOADING].max)
        return NULL;
    e = calloc(1, sizeof *e);
    if (e == NULL)
        return NULL;
    snprintf(e->public_id, sizeof e->public_id, "%s", public_id);
    e->state = ENTRY_LOADING;
    e->generation = d->generation;
    e->next_in_bucket = *bucket;
    *bucket = e;
    list_push(d, e);
    return e;
}

bool directory_is_current(struct directory *d, struct directory_entry *e, int64_t position)
{
    if (e->generation == d->generation && position >= e->stale_before)
        return true;
    /* Positions of another generation may be another log's. */
    if (e->generation != d->generation)
        e->stale_before = 0;
    e->generation = d->generation;
    return false;
}

void directory_finish(struct directory *d, struct directory_entry *e,
                      const struct key_record *record, int64_t now_ms)
{
    struct directory_list *l;

    assert(e->state == ENTRY_LOADING && e->waiters == NULL);
    list_unlink(d, e);
    e->state = record != NULL ? ENTRY_PRESENT : ENTRY_ABSENT;
    if (record != NULL)
        e->record = *record;
    e->loaded_ms = now_ms;
    list_push(d, e);
    l = &d->lists[e->state];
    if (l->n > l->max)
        directory_remove(d, l->oldest);
}

/* ---- the change log ---- */

static void mark_stale(struct directory_entry *e, int64_t position)
{
    if (position > e->stale_before)
        e->stale_before = position;
}

void directory_forget_key(struct directory *d, const char *public_id, int64_t position)
{
    struct directory_entry *e = find(d, public_id);

    if (e == NULL)
        return;
    if (e->state == ENTRY_LOADING)
        mark_stale(e, position);
    else
        directory_remove(d, e);
}

/* Whose key a lookup is about is unknown until it ends, so all that are out are marked. */
void directory_forget_tenant(struct directory *d, int64_t tenant_id, int64_t position)
{
    struct directory_entry *e, *older;

    for (e = d->lists[ENTRY_LOADING].newest; e != NULL; e = e->older)
        mark_stale(e, position);
    for (e = d->lists[ENTRY_PRESENT].newest; e != NULL; e = older) {
        older = e->older;
        if (e->record.principal.tenant_id == tenant_id)
            directory_remove(d, e);
    }
}

void directory_forget_all(struct directory *d)
{
    while (d->lists[ENTRY_PRESENT].newest != NULL)
        directory_remove(d, d->lists[ENTRY_PRESENT].newest);
    while (d->lists[ENTRY_ABSENT].newest != NULL)
        directory_remove(d, d->lists[ENTRY_ABSENT].newest);
    d->generation++;
}
