#include "api/routes.h"

#include <string.h>

#include "api/params.h"
#include "auth/auth.h"
#include "base/size.h"

enum { PUBLIC = LISTENER_MAIN | LISTENER_TLS, ALL = PUBLIC | LISTENER_ADMIN };

static const struct route routes[] = {
    {.method = "POST",
     .path = "/v1/chat/completions",
     .listeners = PUBLIC,
     .scope = SCOPE_INFERENCE,
     .endpoint = ENDPOINT_CHAT,
     .handler = &inference_handler},
    {.method = "POST",
     .path = "/v1/completions",
     .listeners = PUBLIC,
     .scope = SCOPE_INFERENCE,
     .endpoint = ENDPOINT_COMPLETIONS,
     .handler = &inference_handler},
    {.method = "GET",
     .path = "/v1/models",
     .listeners = PUBLIC,
     .scope = SCOPE_INFERENCE,
     .handler = &models_handler},
    {.method = "GET",
     .path = "/v1/models/",
     .is_prefix = true,
     .listeners = PUBLIC,
     .scope = SCOPE_INFERENCE,
     .handler = &model_handler},
    {.method = "GET",
     .path = "/v1/organization/usage/completions",
     .listeners = PUBLIC,
     .scope = SCOPE_USAGE | SCOPE_PLATFORM,
     .handler = &usage_handler},
    {.method = "GET",
     .path = "/health",
     .is_quiet = true,
     .listeners = ALL,
     .handler = &readyz_handler},
    {.method = "GET",
     .path = "/livez",
     .is_quiet = true,
     .listeners = ALL,
     .handler = &livez_handler},
    {.method = "GET",
     .path = "/readyz",
     .is_quiet = true,
     .listeners = ALL,
     .handler = &readyz_handler},
    {.method = "GET",
     .path = "/metrics",
     .is_quiet = true,
     .listeners = ALL,
     .handler = &metrics_handler},
};

static bool matches(const struct route *r, const char *path, size_t len)
{
    size_t n = strlen(r->path);

    if (r->is_prefix)
        return len > n && memcmp(r->path, path, n) == 0;
    return len == n && memcmp(r->path, path, n) == 0;
}

/* What may be got may also be asked for without its body, which H2O leaves out. */
static bool allows(const struct route *r, const char *method, size_t len)
{
    static const char head[] = "HEAD";

    if (strcmp(r->method, "GET") == 0 && len == sizeof head - 1 && memcmp(method, head, len) == 0)
        return true;
    return strlen(r->method) == len && memcmp(r->method, method, len) == 0;
}

enum error_kind route_find(const char *method, size_t method_len, const char *path, size_t path_len,
                           unsigned listener, const struct route **out, const char **allow)
{
    for (size_t i = 0; i < COUNT_OF(routes); i++) {
        const struct route *r = &routes[i];

        if ((r->listeners & listener) == 0 || !matches(r, path, path_len))
            continue;
        if (!allows(r, method, method_len)) {
            *allow = strcmp(r->method, "GET") == 0 ? "GET, HEAD" : r->method;
            return ERROR_METHOD;
        }
        *out = r;
        return ERROR_NONE;
    }
    return ERROR_URL;
}

const struct route *route_at(size_t i)
{
    return i < COUNT_OF(routes) ? &routes[i] : NULL;
}

size_t route_index(const struct route *r)
{
    return r != NULL ? (size_t)(r - routes) : COUNT_OF(routes);
}
