/* A script as Redis gets it: quota/bucket.lua in front of one of ours. Whoever sends it keeps it
 * until the last answer: Redis may ask for the source again. */
#ifndef QUOTA_SCRIPT_H
#define QUOTA_SCRIPT_H

#include "base/buf.h"
#include "base/status.h"
#include "store/redis.h"

struct quota_script {
    struct redis_script redis;
    struct buf source;
};

/* `name` is that of an embedded file: "quota/admit.lua". Disposable even after a failure. */
MUST_CHECK enum status quota_script_init(struct quota_script *s, const char *name);
void quota_script_dispose(struct quota_script *s);

#endif
