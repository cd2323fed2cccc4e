/* Settlements on their way to Redis: sent at once, kept and sent again while Redis is away.
 * Bounded: past it the oldest waiting one is given up (its slot and reservation expire by
 * themselves, its bucket refills). Belongs to the loop's thread. */
#ifndef QUOTA_SETTLEMENTS_H
#define QUOTA_SETTLEMENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "quota/quota.h"
#include "store/redis.h"

struct settlements;

MUST_CHECK enum status settlements_new(struct loop *loop, struct redis *redis, size_t max,
                                       struct settlements **out);
/* What waits is given up; what is out ends on its own, and with it the memory. NULL is fine. */
void settlements_free(struct settlements *s);
void settlements_add(struct settlements *s, const struct quota_ask *ask, int64_t used_tokens);
size_t settlements_count(const struct settlements *s);

#endif
