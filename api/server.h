/* What the files of this folder share about the whole server. Not for other folders: api.h is. */
#ifndef API_SERVER_H
#define API_SERVER_H

#include <h2o.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "api/answers.h"
#include "api/api.h"
#include "api/connection.h"
#include "api/metrics_page.h"
#include "base/worker.h"

#define LISTENERS_MAX 3
/* H2O's own cap on a body lies above ours: what is over ours and under this is answered as JSON. */
#define H2O_ENTITY_MAX_BYTES ((size_t)64 << 20)

struct api_loop;

struct listener {
    int fd;
    enum listener_kind kind;
};

struct api {
    struct api_config cfg; /* the texts are the caller's, as in api_start */
    struct api_parts parts;
    size_t n_models; /* of the engine's */
    h2o_globalconf_t conf;
    SSL_CTX *tls; /* NULL: none */
    struct listener listeners[LISTENERS_MAX];
    size_t n_listeners;
    struct api_loop *loops;
    const struct metrics **loop_metrics; /* of each loop */
    unsigned n_loops;                    /* started; the main thread's: others go by cfg.n_loops */
    struct worker *parser;               /* parses large bodies */
    struct metrics_page metrics_page;
    struct answers answers; /* of all loops */
    atomic_bool draining;
};

/* Whether each loop has turned lately; and, for readyz, each part. Any thread. */
struct api_health {
    bool loops, engine, redis, auth, billing, serving;
};
void api_health(struct api *a, struct api_health *out);
/* Whether every loop reaches the i-th model's engine. Any thread. */
bool api_serves_model(struct api *a, size_t i);

#endif
