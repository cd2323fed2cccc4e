/* The table of endpoints. Knows no H2O. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/errors.h"

struct handler; /* request.h */

/* Bits: which listeners a route is on. */
enum listener_kind { LISTENER_MAIN = 1, LISTENER_TLS = 2, LISTENER_ADMIN = 4 };

struct route {
    const char *method, *path;
    bool is_prefix; /* what follows the path is the handler's: an id */
    bool is_quiet;  /* polled by machines: no access log line */
    unsigned listeners;
    uint32_t scope; /* 0: no key needed */
    int endpoint;   /* enum endpoint, of inference */
    const struct handler *handler;
};

/* What a request asks for. ERROR_NONE and *out; ERROR_URL; ERROR_METHOD and *allow (static). */
enum error_kind route_find(const char *method, size_t method_len, const char *path, size_t path_len,
                           unsigned listener, const struct route **out, const char **allow);
/* For metrics: the route at an index, NULL past the end; and the index of one (NULL: the count). */
const struct route *route_at(size_t i);
size_t route_index(const struct route *r);

/* The handlers, one per file. */
extern const struct handler inference_handler;
extern const struct handler models_handler;
extern const struct handler model_handler;
extern const struct handler usage_handler;
extern const struct handler livez_handler;
extern const struct handler readyz_handler;
extern const struct handler metrics_handler;

#endif
