/* Bodies of completion requests, as bytes: whatever is accepted keeps the promises of params.h. The
 * first byte picks the endpoint. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/params_model.h"
#include "api/query.h"
#include "base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct params *p)
{
    assert(p->model != NULL && strlen(p->model) <= MODEL_NAME_BYTES_MAX);
    assert(p->temperature >= 0 && p->temperature <= 2 && p->top_p >= 0 && p->top_p <= 1);
    assert(p->top_k >= 0 && p->max_tokens >= -1 && p->n_stops <= STOP_STRINGS_MAX);
    assert(p->max_tokens != 0 || p->echo);
    assert(p->n_choices >= 1 && p->n_choices <= ENGINE_CHOICES_MAX);
    assert(p->best_of == 0 || p->best_of == p->n_choices);
    assert(p->n_bias <= LOGIT_BIAS_MAX && p->n_stop_ids <= STOP_IDS_MAX);
    assert(p->stream || !p->include_usage);
    for (size_t i = 0; i < p->n_stops; i++)
        assert(p->stops[i].len > 0 && p->stops[i].len <= STOP_STRING_BYTES_MAX);
    if (p->kind == ENGINE_PROMPT_CHAT)
        assert(json_array_size(p->messages) > 0);
    if (p->kind == ENGINE_PROMPT_IDS)
        assert(json_array_size(p->ids) > 0);
}

/* As the engine's frames want it: finite, and within the ranges of struct sampling. */
static void check_sampling(const struct params *p)
{
    static const struct engine_revision revision = {.context_tokens = 100, .n_vocab = 1000};
    struct api_error e = {0};
    struct sampling s;

    if (!params_check_model(p, &revision, &e))
        return;
    params_sampling(p, &s);
    assert(s.temperature >= 0 && s.temperature <= 2 && s.top_p > 0 && s.top_p <= 1);
    assert(s.min_p >= 0 && s.min_p <= 1 && s.top_k >= 0);
    assert(s.repetition_penalty > 0 && s.repetition_penalty <= 2);
    assert(s.frequency_penalty >= -2 && s.frequency_penalty <= 2);
    assert(s.presence_penalty >= -2 && s.presence_penalty <= 2);
    assert(s.top_logprobs <= TOP_LOGPROBS_MAX && (s.want_logprobs || s.top_logprobs == 0));
    for (uint32_t i = 0; i < s.n_bias; i++) {
        assert(s.bias[i].id >= 0 && s.bias[i].id < 1000);
        assert(s.bias[i].bias >= -100 && s.bias[i].bias <= 100);
        for (uint32_t k = 0; k < i; k++)
            assert(s.bias[k].id != s.bias[i].id);
    }
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
        check_sampling(&p);
        params_dispose(&p);
    } else {
        check_error(&e);
    }
    return 0;
}
