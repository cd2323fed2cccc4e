/* Redis: one connection per loop, asynchronous (hiredis on base/loop.h), with a deadline for every
 * command: a frozen server never hangs a request. After a failed deadline or a lost connection it
 * reconnects with back-off, and commands fail at once with ST_UNAVAILABLE meanwhile. Belongs to the
 * loop's thread. */
#ifndef STORE_REDIS_H
#define STORE_REDIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/status.h"

struct redis;

struct redis_config {
    const char *socket_path;
    int64_t connect_timeout_ms;
    int64_t command_timeout_ms;
    size_t in_flight_max; /* commands waiting for an answer; more are ST_UNAVAILABLE */
};

/* A script: SHA-1 is computed once at redis_script_init; EVALSHA, and EVAL when the server lacks
 * it. */
struct redis_script {
    const char *name;
    const char *source;
    size_t len;
    char sha1[41];
};
void redis_script_init(struct redis_script *s, const char *name, const char *source, size_t len);

/* An answer, borrowed for the call: an array of integers and strings as our scripts return them. */
struct redis_value {
    bool is_integer;
    int64_t integer;
    const char *text; /* when not integer */
    size_t len;
};
struct redis_answer {
    enum status status; /* ST_OK, ST_TIMEOUT, ST_UNAVAILABLE, ST_INTERNAL (the script failed) */
    const struct redis_value *values;
    size_t n_values;
};
typedef void (*redis_callback)(void *arg, const struct redis_answer *a);

MUST_CHECK enum status redis_open(struct loop *loop, const struct redis_config *cfg,
                                  struct redis **out);
/* Outstanding commands end with ST_UNAVAILABLE from inside. Not from an on_answer. NULL is fine. */
void redis_close(struct redis *r);
bool redis_is_connected(const struct redis *r);

struct redis_arg {
    const char *data;
    size_t len;
};
/* on_answer comes exactly once, never from inside this call. */
void redis_eval(struct redis *r, const struct redis_script *s, const struct redis_arg *keys,
                size_t n_keys, const struct redis_arg *args, size_t n_args,
                redis_callback on_answer, void *arg);

#endif
