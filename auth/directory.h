/* The cache of what Postgres says about keys, by public id. Bounded: keys that exist and public ids
 * that don't have lists of their own, so that made-up ids push out no real key; ids being looked up
 * are bounded too. Pure data: the owner (auth.c) holds its lock around every call. */
#ifndef AUTH_DIRECTORY_H
#define AUTH_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auth/lookup.h"

enum directory_state { ENTRY_LOADING, ENTRY_PRESENT, ENTRY_ABSENT };

struct directory_entry {
    struct directory_entry *next_in_bucket;
    struct directory_entry *newer, *older; /* in its state's list */
    enum directory_state state;            /* changed by directory_* only */
    char public_id[KEY_PUBLIC_ID_CHARS + 1];
    struct key_record record;   /* when present */
    int64_t loaded_ms;          /* monotonic */
    int64_t stale_before;       /* loading: an answer from before this position is worth nothing */
    uint64_t generation;        /* loading: the directory's when the lookup began */
    struct auth_check *waiters; /* loading: who is told; the owner's */
};

struct directory_list { /* newest first */
    struct directory_entry *newest, *oldest;
    size_t n, max;
};

struct directory {
    struct directory_entry **buckets;
    size_t mask;
    uint64_t seed; /* of the hash: ids are chosen by strangers */
    uint64_t generation;
    struct directory_list lists[3]; /* by state */
};

MUST_CHECK enum status directory_init(struct directory *d, size_t max, uint64_t seed);
void directory_dispose(struct directory *d);

/* The entry, moved to the front of its list; NULL when there is none. */
struct directory_entry *directory_find(struct directory *d, const char *public_id);
/* A new entry in state loading; NULL when too many are loading or there is no memory. The id is not
 * in the directory. */
struct directory_entry *directory_start(struct directory *d, const char *public_id);
/* Whether what a lookup saw at `position` is still true; if not, it has to ask again, and this call
 * has noted that it does. */
bool directory_is_current(struct directory *d, struct directory_entry *e, int64_t position);
/* The lookup's outcome: present (record given) or absent (NULL). */
void directory_finish(struct directory *d, struct directory_entry *e,
                      const struct key_record *record, int64_t now_ms);
void directory_remove(struct directory *d, struct directory_entry *e);

/* What the change log says, at its position. Entries go; lookups that are out are marked. */
void directory_forget_key(struct directory *d, const char *public_id, int64_t position);
void directory_forget_tenant(struct directory *d, int64_t tenant_id, int64_t position);
void directory_forget_all(struct directory *d);

#endif
