/* GET /v1/models and /v1/models/{id}. */
#include <string.h>

#include "api/loop_thread.h"
#include "api/respond.h"
#include "api/routes.h"
#include "api/shapes.h"

static bool stage_list(struct request *r)
{
    struct buf body;

    buf_init(&body);
    shape_models(&body, r->loop->api->parts.engine);
    respond_json(r, 200, &body);
    buf_dispose(&body);
    request_end(r);
    return false;
}

/* The id or alias is what follows the route's path; H2O has decoded it. It may contain slashes. */
static const struct engine_model *find(struct request *r, char name[MODEL_NAME_BYTES_MAX + 1])
{
    size_t skip = strlen(r->route->path);
    h2o_iovec_t path = r->http->path_normalized;

    /* A decoded NUL byte would end the name before the path's end. */
    if (path.len - skip > MODEL_NAME_BYTES_MAX || memchr(path.base, '\0', path.len) != NULL)
        return NULL;
    memcpy(name, path.base + skip, path.len - skip);
    name[path.len - skip] = '\0';
    return engine_model_find(r->loop->api->parts.engine, name);
}

static bool stage_one(struct request *r)
{
    char name[MODEL_NAME_BYTES_MAX + 1];
    const struct engine_model *m = find(r, name);
    struct api_error e;
    struct buf body;

    if (m == NULL) {
        error_set(&e, ERROR_MODEL, "model", "%s", "");
        request_fail(r, &e);
        return false;
    }
    buf_init(&body);
    shape_model(&body, m, name);
    respond_json(r, 200, &body);
    buf_dispose(&body);
    request_end(r);
    return false;
}

static const request_stage list_stages[] = {request_authenticate, stage_list, NULL};
static const request_stage one_stages[] = {request_authenticate, stage_one, NULL};

const struct handler models_handler = {.stages = list_stages};
const struct handler model_handler = {.stages = one_stages};
