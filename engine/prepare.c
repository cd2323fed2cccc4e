/* Text work on the text threads: messages, text or ids of a request become the prompt's tokens. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "engine/engine_state.h"
#include "engine/text/template_content.h"

/* A prompt over the context is refused with its exact count up to this many contexts; beyond,
 * counting on would only cost the others' time. */
#define COUNT_CONTEXTS 8

static const char *prompt_param(const struct engine_prepare *p)
{
    return p->kind == ENGINE_PROMPT_CHAT ? "messages" : "prompt";
}

/* The model needs room for one token of output. */
static enum status check_length(struct engine_prepare *p)
{
    uint32_t context = p->revision->context_tokens;

    if (p->n_ids == 0)
        return fail_param(&p->reason, ST_INVALID, prompt_param(p), "The prompt is empty.");
    if (p->n_ids < context)
        return ST_OK;
    return fail_param(&p->reason, ST_TOO_LONG, prompt_param(p),
                      "This model's maximum context length is %u tokens. However, your %s "
                      "resulted in %u tokens.",
                      context, p->kind == ENGINE_PROMPT_CHAT ? "messages" : "prompt", p->n_ids);
}

static enum status counted_too_many(struct engine_prepare *p, size_t counted)
{
    p->n_ids = (uint32_t)counted;
    return fail_param(&p->reason, ST_TOO_LONG, prompt_param(p),
                      "This model's maximum context length is %u tokens. However, your %s "
                      "resulted in more than %zu tokens.",
                      p->revision->context_tokens,
                      p->kind == ENGINE_PROMPT_CHAT ? "messages" : "prompt", counted);
}

/* With the BOS that the model asks for, where the text doesn't begin with it already. */
static enum status encode(struct engine_prepare *p, const struct text_span *spans, size_t n_spans)
{
    const struct served_revision *m = served_revision_of(p->revision);
    size_t most = (size_t)p->revision->context_tokens * COUNT_CONTEXTS;
    struct token_ids ids = {0};
    enum status s = tokenizer_encode(m->tokenizer, spans, n_spans, TOKENIZER_BOS, most, &ids);

    if (s == ST_OK) {
        p->ids = ids.ids;
        p->n_ids = (uint32_t)ids.n;
        return ST_OK;
    }
    if (s == ST_TOO_LARGE)
        s = counted_too_many(p, most);
    else if (s == ST_INVALID)
        fail_param(&p->reason, s, prompt_param(p), "The text is not valid UTF-8.");
    token_ids_dispose(&ids);
    return s;
}

/* ---- chat ---- */

static enum status encode_rendered(struct engine_prepare *p, const struct rendered *r)
{
    struct text_span *spans = calloc(r->n_spans != 0 ? r->n_spans : 1, sizeof spans[0]);
    enum status s;

    if (spans == NULL)
        return ST_NO_MEMORY;
    /* Only what the template itself wrote may become control tokens: a user's text that looks like
     * one stays text. */
    for (size_t i = 0; i < r->n_spans; i++)
        spans[i] = (struct text_span){.text = r->text + r->spans[i].start,
                                      .len = r->spans[i].len,
                                      .control = r->spans[i].from_template};
    s = encode(p, spans, r->n_spans);
    free(spans);
    return s;
}

static enum status render(const struct served_revision *m, struct engine_prepare *p,
                          struct rendered *out)
{
    json_t *messages = NULL;
    struct template_input in = {.documents = p->documents,
                                .extra = p->extra,
                                .bos_token = tokenizer_bos_text(m->tokenizer),
                                .eos_token = tokenizer_eos_text(m->tokenizer),
                                .add_generation_prompt = p->add_generation_prompt,
                                .continue_final_message = p->continue_final_message,
                                .now_s = clock_wall_ms() / 1000};
    enum status s = template_shape_messages(m->content_forms, p->messages, &messages);

    if (s != ST_OK)
        return s;
    in.messages = messages;
    s = template_render(m->template, &in, out, &p->reason);
    json_decref(messages);
    /* A bound of the interpreter was reached: by these messages. */
    if (s != ST_OK && p->reason.param[0] == '\0')
        snprintf(p->reason.param, sizeof p->reason.param, "messages");
    return s == ST_OK || s == ST_NO_MEMORY ? s : ST_INVALID;
}

static enum status prepare_chat(struct engine_prepare *p)
{
    const struct served_revision *m = served_revision_of(p->revision);
    struct rendered r = {0};
    enum status s;

    if (m->template == NULL)
        return fail_param(&p->reason, ST_INVALID, "messages",
                          "This model has no chat template; use /v1/completions.");
    s = render(m, p, &r);
    if (s == ST_OK)
        s = encode_rendered(p, &r);
    rendered_dispose(&r);
    return s;
}

/* ---- text and ids ---- */

static enum status prepare_text(struct engine_prepare *p)
{
    struct text_span span = {.text = p->text, .len = p->text_len, .control = p->control_tokens};

    return encode(p, &span, 1);
}

static enum status take_id(struct engine_prepare *p, const json_t *v, size_t at)
{
    const struct served_revision *m = served_revision_of(p->revision);
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;

    if (id < 0 || id >= (json_int_t)p->revision->n_vocab)
        return fail_param(&p->reason, ST_INVALID, "prompt",
                          "Token %zu of the prompt is not an id of this model's vocabulary.", at);
    if (!p->control_tokens && tokenizer_is_control(m->tokenizer, (int32_t)id))
        return fail_param(&p->reason, ST_INVALID, "prompt",
                          "Token %zu of the prompt is a control token, which this key's scopes do "
                          "not allow (control-tokens).",
                          at);
    p->ids[p->n_ids++] = (int32_t)id;
    return ST_OK;
}

static enum status prepare_ids(struct engine_prepare *p)
{
    size_t n = json_array_size(p->id_array), bytes;
    enum status s = ST_OK;

    if (n >= (size_t)p->revision->context_tokens * COUNT_CONTEXTS)
        return counted_too_many(p, n);
    if (n == 0)
        return ST_OK;
    if (!size_mul(n, sizeof p->ids[0], &bytes) || (p->ids = malloc(bytes)) == NULL)
        return ST_NO_MEMORY;
    for (size_t i = 0; s == ST_OK && i < n; i++)
        s = take_id(p, json_array_get(p->id_array, i), i);
    return s;
}

/* ---- the work ---- */

static enum status prepare(struct engine_prepare *p)
{
    enum status s = ST_INTERNAL;

    switch (p->kind) {
    case ENGINE_PROMPT_CHAT:
        s = prepare_chat(p);
        break;
    case ENGINE_PROMPT_TEXT:
        s = prepare_text(p);
        break;
    case ENGINE_PROMPT_IDS:
        s = prepare_ids(p);
        break;
    }
    return s == ST_OK ? check_length(p) : s;
}

static void on_prepared(struct loop_message *message)
{
    struct engine_prepare *p = CONTAINER_OF(message, struct engine_prepare, message);

    p->on_done(p);
}

static void on_run(struct work *w, void *thread_state)
{
    struct engine_prepare *p = CONTAINER_OF(w, struct engine_prepare, work);

    (void)thread_state;
    p->status = prepare(p);
    if (p->status != ST_OK) {
        free(p->ids);
        p->ids = NULL;
    }
    tenant_share_give_back(&p->engine->share, p->tenant);
    /* From here p belongs to the loop. */
    loop_post(p->loop, &p->message);
}

enum status engine_prepare(struct engine *e, struct engine_prepare *p)
{
    enum status s = tenant_share_take(&e->share, p->tenant);

    if (s != ST_OK)
        return s;
    p->engine = e;
    p->ids = NULL;
    p->n_ids = 0;
    p->reason = (struct reason){0};
    p->message.on_message = on_prepared;
    p->work.on_run = on_run;
    s = worker_submit(e->text, &p->work);
    if (s != ST_OK)
        tenant_share_give_back(&e->share, p->tenant);
    return s;
}
