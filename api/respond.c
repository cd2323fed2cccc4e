#include "api/respond.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/duration.h"
#include "api/loop_thread.h"
#include "base/size.h"

static const char *reason_phrase(int http_status)
{
    static const struct {
        int http_status;
        const char *text;
    } phrases[] = {
        {200, "OK"},           {400, "Bad Request"},         {401, "Unauthorized"},
        {403, "Forbidden"},    {404, "Not Found"},           {405, "Method Not Allowed"},
        {413, "Too Large"},    {429, "Too Many Requests"},   {499, "Client Closed Request"},
        {500, "Server Error"}, {503, "Service Unavailable"}, {504, "Gateway Timeout"},
    };

    for (size_t i = 0; i < COUNT_OF(phrases); i++)
        if (phrases[i].http_status == http_status)
            return phrases[i].text;
    return "Error";
}

void respond_header(struct request *r, const char *name, const char *value)
{
    size_t len = strlen(value);
    h2o_iovec_t copy;

    if (r->http == NULL)
        return;
    /* H2O keeps the pointer: the value must live as long as the request. */
    copy = h2o_strdup(&r->http->pool, value, len);
    h2o_add_header_by_str(&r->http->pool, &r->http->res.headers, name, strlen(name), 1, NULL,
                          copy.base, len);
}

static void header_int(struct request *r, const char *name, int64_t v)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRId64, v);
    respond_header(r, name, text);
}

static void rate_headers(struct request *r, const struct quota_state *s, const char *const names[3])
{
    char reset[DURATION_TEXT_BYTES];

    if (s->limit <= 0)
        return;
    duration_format(s->reset_ms, reset);
    header_int(r, names[0], s->limit);
    header_int(r, names[1], s->remaining);
    respond_header(r, names[2], reset);
}

void respond_head(struct request *r, int http_status, const char *content_type)
{
    static const char *const of_requests[] = {"x-ratelimit-limit-requests",
                                              "x-ratelimit-remaining-requests",
                                              "x-ratelimit-reset-requests"};
    static const char *const of_tokens[] = {
        "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"};

    r->started = true;
    r->http_status = http_status;
    r->http->res.status = http_status;
    r->http->res.reason = reason_phrase(http_status);
    respond_header(r, "content-type", content_type);
    respond_header(r, "x-request-id", r->name);
    header_int(r, "openai-processing-ms", loop_now_ms(&r->loop->loop.super) - r->begin_ms);
    if (r->has_rates) {
        rate_headers(r, &r->rate_requests, of_requests);
        rate_headers(r, &r->rate_tokens, of_tokens);
    }
    /* A drain waits for no idle connection. */
    if (atomic_load(&r->loop->api->draining))
        r->http->http1_is_persistent = 0;
}

void respond(struct request *r, int http_status, const char *content_type, const char *body,
             size_t len)
{
    if (r->http == NULL || r->answered)
        return;
    respond_head(r, http_status, content_type);
    r->http->res.content_length = len;
    r->answered = true;
    h2o_send_inline(r->http, body, len);
}

void respond_json(struct request *r, int http_status, const struct buf *body)
{
    static const char no_memory[] =
        "{\"error\":{\"message\":\"Out of memory.\",\"type\":\"server_error\",\"param\":null,"
        "\"code\":\"internal_error\"}}";

    if (body->failed)
        respond(r, 500, "application/json", no_memory, sizeof no_memory - 1);
    else
        respond(r, http_status, "application/json", body->data, body->len);
}

static void retry_headers(struct request *r, const struct api_error *e)
{
    int64_t ms = int64_max(e->retry_after_ms, 1);

    respond_header(r, "x-should-retry", error_info(e->kind)->retry ? "true" : "false");
    if (e->retry_after_ms == 0)
        return;
    header_int(r, "retry-after", (ms + 999) / 1000);
    header_int(r, "retry-after-ms", ms);
}

void respond_error(struct request *r, const struct api_error *e)
{
    const struct error_info *info = error_info(e->kind);
    struct buf body;

    if (r->http == NULL || r->answered)
        return;
    if (e->kind == ERROR_API_KEY)
        respond_header(r, "www-authenticate", "Bearer realm=\"sluice\"");
    if (info->http == 429 || info->http >= 500)
        retry_headers(r, e);
    buf_init(&body);
    error_put(&body, e);
    respond_json(r, info->http, &body);
    buf_dispose(&body);
}
