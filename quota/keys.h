/* Redis's keys of this folder, all built here: `{t<tenant>}:v1:…`, so that a tenant's keys share a
 * hash slot and a new layout gets new names. And the scripts' common arguments. Pure. */
#ifndef QUOTA_KEYS_H
#define QUOTA_KEYS_H

#include <stddef.h>

#include "quota/quota.h"

/* Higher limits count as this one: quota/bucket.lua says why. */
#define QUOTA_LIMIT_MAX 100000000

enum { QUOTA_LIMITS = 9, QUOTA_KEYS = 1 + QUOTA_LIMITS, QUOTA_ARGS_MAX = 16 };

struct quota_words {
    struct redis_arg keys[QUOTA_KEYS]; /* the reservation, then a key per limit */
    struct redis_arg args[QUOTA_ARGS_MAX];
    size_t n_args;
    size_t used;
    char text[2048]; /* what keys and args point into */
};

/* Fills the keys: the reservation; for tenant, project, key: requests, tokens, slots. */
void quota_words_init(struct quota_words *w, const struct quota_ask *ask);
void quota_words_add_id(struct quota_words *w, const struct id *id);
void quota_words_add_int(struct quota_words *w, int64_t v);
/* The nine limits, in the order of the keys. */
void quota_words_add_limits(struct quota_words *w, const struct quota_ask *ask);

#endif
