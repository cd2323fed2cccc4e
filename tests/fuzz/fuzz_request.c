/* Bodies of completion requests, as bytes: whatever is accepted keeps the promises of params.h. The
 * first byte picks the endpoint. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/params.h"
#include "api/query.h"
#include "base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct params *p)
{
    assert(p->model != NULL && strlen(p->model) <= MODEL_NAME_BYTES_MAX);
    assert(p->temperature >= 0 && p->temperature <= 2 && p->top_p >= 0 && p->top_p <= 1);
    assert(p->top_k >= 0 && p->max_tokens >= 0 && p->n_stops <= STOP_STRINGS_MAX);
    assert(p->stream || !p->include_usage);
    for (size_t i = 0; i < p->n_stops; i++)
        assert(p->stops[i].len > 0 && p->stops[i].len <= STOP_STRING_BYTES_MAX);
    if (p->kind == ENGINE_PROMPT_CHAT)
        assert(json_array_size(p->messages) > 0);
    if (p->kind == ENGINE_PROMPT_IDS)
        assert(json_array_size(p->ids) > 0);
}

static void check_error(const struct api_error *e)
{
    struct buf b;

    buf_init(&b);
    error_put(&b, e);
    assert(!b.failed && error_info(e->kind)->http < 500);
    buf_dispose(&b);
}

static void read_query(const char *text, size_t len)
{
    const char *name, *value;
    struct query q;

    if (!query_init(&q, text, len))
        return;
    while (query_next(&q, &name, &value))
        assert(strlen(name) + strlen(value) <= QUERY_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_error e = {0};
    struct params p;
    const char *body;

    if (size == 0)
        return 0;
    body = (const char *)data + 1;
    read_query(body, size - 1);
    if (params_parse(data[0] % 2 == 0 ? ENDPOINT_CHAT : ENDPOINT_COMPLETIONS, body, size - 1, &p,
                     &e)) {
        check(&p);
        params_dispose(&p);
    } else {
        check_error(&e);
    }
    return 0;
}
