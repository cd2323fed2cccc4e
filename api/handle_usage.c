/* GET /v1/organization/usage/completions: the tenant's own usage, in OpenAI's shape. */
#include <stdlib.h>
#include <string.h>

#include "api/loop_thread.h"
#include "api/query.h"
#include "api/respond.h"
#include "api/routes.h"
#include "base/size.h"
#include "billing/billing.h"

#define AWAY_RETRY_MS 1000

struct usage_request {
    struct request *request;
    struct usage_query query;
    bool has_start, has_limit;
};

/* OpenAI's widths, with the buckets of a page: default and most. */
static const struct width {
    const char *name;
    int bucket_s, limit, limit_max;
} widths[] = {{"1d", 86400, 7, 31}, {"1h", 3600, 24, 168}, {"1m", 60, 60, 1440}};

static bool bad(struct api_error *e, const char *name, const char *want)
{
    return error_set(e, ERROR_VALUE, name, "Invalid value for '%s': expected %s.", name, want);
}

/* ---- one function per parameter ---- */

static bool take_time(int64_t *out, const char *name, const char *value, struct api_error *e)
{
    long long v;

    if (!query_int(value, &v))
        return bad(e, name, "Unix seconds");
    *out = v;
    return true;
}

static bool take_start(struct usage_request *u, const char *v, struct api_error *e)
{
    u->has_start = true;
    return take_time(&u->query.start_s, "start_time", v, e);
}

static bool take_end(struct usage_request *u, const char *v, struct api_error *e)
{
    return take_time(&u->query.end_s, "end_time", v, e);
}

static bool take_width(struct usage_request *u, const char *v, struct api_error *e)
{
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        if (strcmp(widths[i].name, v) == 0) {
            u->query.bucket_s = widths[i].bucket_s;
            return true;
        }
    }
    return bad(e, "bucket_width", "one of '1m', '1h' and '1d'");
}

static bool take_limit(struct usage_request *u, const char *v, struct api_error *e)
{
    long long n;

    if (!query_int(v, &n) || n < 1 || n > widths[COUNT_OF(widths) - 1].limit_max)
        return bad(e, "limit", "an integer from 1 to what the bucket width allows");
    u->query.limit = (int)n;
    u->has_limit = true;
    return true;
}

static bool take_page(struct usage_request *u, const char *v, struct api_error *e)
{
    return usage_page_parse(v, &u->query.page_s) || bad(e, "page", "the 'next_page' of an answer");
}

static bool take_group(struct usage_request *u, const char *v, struct api_error *e)
{
    static const char *const names[] = {"project_id", "api_key_id", "model"}; /* bits 1, 2, 4 */

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(names[i], v) == 0) {
            u->query.group_by |= 1U << i;
            return true;
        }
    }
    if (strcmp(v, "user_id") == 0 || strcmp(v, "batch") == 0 || strcmp(v, "service_tier") == 0)
        return error_set(e, ERROR_UNSUPPORTED, "group_by", "'group_by' %s is not supported.", v);
    return bad(e, "group_by", "one of 'project_id', 'api_key_id' and 'model'");
}

/* The query is bound to the caller's tenant, so a stranger's project finds nothing. */
static bool take_project(struct usage_request *u, const char *v, struct api_error *e)
{
    static const char prefix[] = "proj_";
    long long n;

    if (u->query.project_id != 0)
        return error_set(e, ERROR_UNSUPPORTED, "project_ids",
                         "More than one of 'project_ids' is not supported.");
    if (strncmp(v, prefix, sizeof prefix - 1) != 0 || !query_int(v + sizeof prefix - 1, &n) ||
        n == 0)
        return bad(e, "project_ids", "a project id as answers show it");
    u->query.project_id = n;
    return true;
}

static const struct parameter {
    const char *name;
    bool (*take)(struct usage_request *u, const char *value, struct api_error *e); /* NULL: known,
                                                                              not supported */
} parameters[] = {
    {"start_time", take_start},
    {"end_time", take_end},
    {"bucket_width", take_width},
    {"limit", take_limit},
    {"page", take_page},
    {"group_by", take_group},
    {"project_ids", take_project},
    {"user_ids", NULL},
    {"api_key_ids", NULL},
    {"models", NULL},
    {"batch", NULL},
};

static bool take(struct usage_request *u, const char *name, const char *value, struct api_error *e)
{
    for (size_t i = 0; i < COUNT_OF(parameters); i++) {
        if (strcmp(parameters[i].name, name) != 0)
            continue;
        if (parameters[i].take == NULL)
            return error_set(e, ERROR_UNSUPPORTED, name, "'%s' is not supported.", name);
        return parameters[i].take(u, value, e);
    }
    return true; /* unknown ones are ignored, as in bodies */
}

static const struct width *width_of(int bucket_s)
{
    size_t i = 0;

    while (widths[i].bucket_s != bucket_s)
        i++;
    return &widths[i];
}

static bool check_whole(struct usage_request *u, struct api_error *e)
{
    struct usage_query *q = &u->query;
    const struct width *w = width_of(q->bucket_s);

    if (!u->has_start)
        return error_set(e, ERROR_MISSING, "start_time",
                         "Missing required parameter: 'start_time'.");
    if (q->end_s != 0 && q->end_s <= q->start_s)
        return bad(e, "end_time", "a time after 'start_time'");
    if (!u->has_limit)
        q->limit = w->limit;
    if (q->limit > w->limit_max)
        return error_set(e, ERROR_VALUE, "limit",
                         "Invalid value for 'limit': at most %d with this bucket width.",
                         w->limit_max);
    return true;
}

static bool parse(struct usage_request *u, struct api_error *e)
{
    h2o_req_t *http = u->request->http;
    size_t at = http->query_at != SIZE_MAX ? http->query_at + 1 : http->path.len;
    const char *name, *value;
    struct query q;

    if (!query_init(&q, http->path.base + at, http->path.len - at))
        return error_set(e, ERROR_MALFORMED, "", "The query string is malformed or too long.");
    while (query_next(&q, &name, &value))
        if (!take(u, name, value, e))
            return false;
    return check_whole(u, e);
}

/* ---- the handler ---- */

static void on_done(struct usage_query *q)
{
    struct usage_request *u = CONTAINER_OF(q, struct usage_request, query);
    struct request *r = u->request;
    struct api_error e = {.kind = error_from_status(q->status), .reason = q->reason};

    if (q->status != ST_OK) {
        e.retry_after_ms = q->status == ST_INVALID ? 0 : AWAY_RETRY_MS;
        request_fail(r, &e);
        return;
    }
    respond_json(r, 200, &q->body);
    request_end(r);
}

static bool stage_usage(struct request *r)
{
    struct usage_request *u = calloc(1, sizeof *u);
    struct api_error e = {.kind = ERROR_OVERLOADED, .retry_after_ms = AWAY_RETRY_MS};
    const struct principal *who = &r->auth.principal;
    enum status s;

    if (u == NULL) {
        request_fail(r, &e);
        return false;
    }
    r->state = u;
    u->request = r;
    buf_init(&u->query.body);
    u->query.loop = &r->loop->loop.super;
    u->query.on_done = on_done;
    u->query.tenant_id = (who->scopes & SCOPE_PLATFORM) != 0 ? 0 : who->tenant_id;
    u->query.bucket_s = widths[0].bucket_s;
    if (!parse(u, &e)) {
        request_fail(r, &e);
        return false;
    }
    s = billing_usage(r->loop->api->parts.billing, &u->query);
    if (s == ST_OK)
        return false;
    e = (struct api_error){.kind = error_from_status(s), .reason = u->query.reason};
    if (s != ST_INVALID)
        e.retry_after_ms = AWAY_RETRY_MS;
    request_fail(r, &e);
    return false;
}

static void on_dispose(struct request *r)
{
    struct usage_request *u = r->state;

    if (u == NULL)
        return;
    buf_dispose(&u->query.body);
    free(u);
}

static const request_stage stages[] = {request_authenticate, stage_usage, NULL};

const struct handler usage_handler = {.stages = stages, .dispose = on_dispose};
