/* HTTP: the listeners, loops and request stages. The only folder that includes h2o.h (not here).
 *
 * api_start makes `n_loops` threads, each with its H2O context, its own Redis connection, quota and
 * engine link, and every request accepted there. */
#ifndef API_API_H
#define API_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "auth/auth.h"
#include "base/status.h"
#include "billing/billing.h"
#include "engine/engine.h"
#include "quota/quota.h"
#include "store/redis.h"

struct api;

/* A request of a gateway that died. */
struct api_interrupted {
    struct quota_ask ask;       /* whose concurrency slots are given back at start */
    struct billing_final final; /* as its last progress record has it */
    char model[96];
    bool is_held; /* `final` is written here, once the engine has said how it ended */
};

struct api_config {
    const char *listen; /* "127.0.0.1" */
    int port;           /* HTTP/1.1 and cleartext HTTP/2 */
    int tls_port;       /* 0: none */
    const char *tls_cert, *tls_key;
    const char *admin_listen; /* "127.0.0.1" */
    int admin_port;           /* health and metrics; 0: none */
    unsigned n_loops;
    size_t body_max_bytes;         /* 8 MiB */
    size_t buffered_max_bytes;     /* over all requests of a loop whose bodies H2O holds */
    size_t answers_max_bytes;      /* of all answers that wait for their clients, all loops */
    unsigned connections_max;      /* per loop */
    int64_t ping_ms;               /* SSE comment after so much silence; 5,000 */
    int64_t request_max_ms;        /* longest life of a request; also the slot's deadline */
    int64_t reserve_output_tokens; /* most output tokens that a rate reserves; 1,024 */
    int64_t queue_max_ms;          /* longest wait in the engine's queue; 0: no bound */
    struct redis_config redis;
    const char *build;                         /* version text */
    const struct api_interrupted *interrupted; /* borrowed until api_start returns */
    size_t n_interrupted;
    int64_t adopt_ms; /* longest wait for the engine's word about those that are held */
};

struct api_parts {
    struct engine *engine;
    struct auth *auth;
    struct billing *billing;
};

/* Binds, then starts the loops. ST_CONFLICT names the address and port in use. */
MUST_CHECK enum status api_start(const struct api_config *cfg, const struct api_parts *parts,
                                 struct api **out, struct reason *why);
/* Readiness off, GOAWAY, no new connections; returns when all requests ended or the deadline passed
 * (then the rest is cancelled and settled). */
void api_drain(struct api *a, int64_t deadline_ms);
/* After api_drain: joins the loops and frees. */
void api_stop(struct api *a);

#endif
