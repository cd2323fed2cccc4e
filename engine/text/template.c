#include "engine/text/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_eval.h"
#include "engine/text/jinja_parse.h"
#include "engine/text/jinja_tables.h"
#include "engine/text/template_continue.h"

/* The longest chat templates in use are below 30 KiB. */
#define SOURCE_BYTES_MAX ((size_t)1024 * 1024)

struct template
{
    struct arena arena; /* source and tree */
    struct stmt *body;
};

/* Newlines become \n, and the last one goes, as Jinja does before it looks at anything. */
static char *normalize(struct arena *arena, const char *source, size_t len, size_t *out_len)
{
    char *out = arena_alloc(arena, len + 1);
    size_t n = 0;

    for (size_t i = 0; out != NULL && i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        out[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n != 0 && out[n - 1] == '\n')
        out[--n] = '\0';
    *out_len = n;
    return out;
}

enum status template_new(const char *source, size_t len, struct template **out, struct reason *why)
{
    struct template *t;
    enum status s;
    char *text;

    if (len > SOURCE_BYTES_MAX)
        return fail(why, ST_TOO_LARGE, "the chat template is larger than 1 MiB");
    if (!utf8_is_valid(source, len))
        return fail(why, ST_INVALID, "the chat template is not valid UTF-8");
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    arena_init(&t->arena, JINJA_MEMORY_MAX);
    text = normalize(&t->arena, source, len, &len);
    s = text == NULL ? fail(why, ST_NO_MEMORY, "out of memory")
                     : jinja_parse(&t->arena, text, len, &t->body, why);
    if (s != ST_OK) {
        template_free(t);
        return s;
    }
    *out = t;
    return ST_OK;
}

void template_free(struct template *t)
{
    if (t == NULL)
        return;
    arena_dispose(&t->arena);
    free(t);
}

void rendered_dispose(struct rendered *r)
{
    free(r->text);
    free(r->spans);
    *r = (struct rendered){0};
}

/* Names that further variables must leave alone: the request's own, and functions. */
static bool is_taken(const char *name)
{
    static const char *const own[] = {"messages",  "tools",
                                      "documents", "add_generation_prompt",
                                      "bos_token", "continue_final_message",
                                      "eos_token"};

    for (size_t i = 0; i < COUNT_OF(own); i++) {
        if (strcmp(name, own[i]) == 0)
            return true;
    }
    return jinja_global(name) != NULL;
}

static enum status check_input(const struct template_input *in, struct reason *why)
{
    json_t *extra = (json_t *)(uintptr_t)in->extra; /* only read */

    if (in->add_generation_prompt && in->continue_final_message)
        return fail_param(why, ST_INVALID, "continue_final_message",
                          "'continue_final_message' and 'add_generation_prompt' can't both be "
                          "true: the prompt ends in the last message or begins a new one.");
    for (void *it = json_object_iter(extra); it != NULL; it = json_object_iter_next(extra, it)) {
        if (is_taken(json_object_iter_key(it)))
            return fail_param(why, ST_INVALID, "chat_template_kwargs",
                              "'chat_template_kwargs' can't set '%s', which has another meaning in "
                              "templates.",
                              json_object_iter_key(it));
    }
    return ST_OK;
}

/* Many templates write '<|' + role + '|>': with the role taken for a user's text that would be no
 * control token. A role that is one of these words holds nothing of a user's. */
static void mark_role(struct jinja *j, struct jdict *message)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};

    for (size_t i = 0; i < message->n; i++) {
        struct jval *v = &message->values[i];

        if (v->type != JT_STRING || !js_is(message->keys[i].s, "role"))
            continue;
        for (size_t k = 0; k < COUNT_OF(roles); k++) {
            if (js_is(v->s, roles[k]))
                v->s = js_new(j, roles[k], strlen(roles[k]), true);
        }
    }
}

/* *text receives the last message's, where it is to be continued. */
static void bind_messages(struct jinja *j, const struct template_input *in,
                          const struct jstr **text)
{
    struct jval v = jinja_from_json(j, in->messages);

    for (size_t i = 0; v.type == JT_SEQ && i < v.seq->n; i++) {
        if (v.seq->items[i].type == JT_DICT)
            mark_role(j, v.seq->items[i].dict);
    }
    if (in->continue_final_message)
        *text = template_tag_last(j, v);
    jinja_bind(j, "messages", v);
}

/* Variables as Hugging Face's apply_chat_template passes them: tools and documents are always
 * defined. */
static void bind_input(struct jinja *j, const struct template_input *in, const struct jstr **text)
{
    json_t *extra = (json_t *)(uintptr_t)in->extra; /* only read */
    const char *tokens[] = {in->bos_token, in->eos_token};
    static const char *const names[] = {"bos_token", "eos_token"};

    for (void *it = json_object_iter(extra); it != NULL; it = json_object_iter_next(extra, it))
        jinja_bind(j, json_object_iter_key(it), jinja_from_json(j, json_object_iter_value(it)));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (tokens[i] != NULL)
            jinja_bind(j, names[i], jv_str(js_new(j, tokens[i], strlen(tokens[i]), true)));
    }
    bind_messages(j, in, text);
    jinja_bind(j, "tools", jinja_from_json(j, in->tools));
    jinja_bind(j, "documents", jinja_from_json(j, in->documents));
    jinja_bind(j, "add_generation_prompt", jv_bool(in->add_generation_prompt));
}

/* Copies the output out of the arena. */
static enum status take(const struct jstr *s, struct rendered *out)
{
    struct rendered r = {.len = s->len};
    size_t start = 0;

    r.text = malloc(s->len + 1);
    r.spans = calloc(s->n_runs, sizeof *r.spans);
    if (r.text == NULL || r.spans == NULL) {
        rendered_dispose(&r);
        return ST_NO_MEMORY;
    }
    memcpy(r.text, s->data, s->len);
    r.text[s->len] = '\0';
    for (size_t i = 0; start < s->len; i++) {
        size_t end = s->runs[i].end < s->len ? s->runs[i].end : s->len;

        r.spans[r.n_spans++] = (struct rendered_span){start, end - start, s->runs[i].from_template};
        start = end;
    }
    *out = r;
    return ST_OK;
}

enum status template_render(const struct template *t, const struct template_input *in,
                            struct rendered *out, struct reason *why)
{
    struct jinja j = {.why = why,
                      .line = 1,
                      .steps_left = JINJA_STEPS_MAX,
                      .now_s = in->now_s,
                      .output_max =
                          in->output_max_bytes != 0 ? in->output_max_bytes : JINJA_OUTPUT_MAX};
    const struct jstr *last = &js_empty, *all;
    struct jtext text;
    enum status s = check_input(in, why);

    if (s != ST_OK)
        return s;
    arena_init(&j.arena, JINJA_MEMORY_MAX);
    jt_init(&text, &j);
    j.out = &text;
    j.scope = jinja_scope_new(&j, NULL);
    if (j.scope != NULL) {
        bind_input(&j, in, &last);
        jinja_run_body(&j, t->body);
    }
    all = jt_finish(&text);
    if (in->continue_final_message)
        all = template_cut_at_tag(&j, all, last);
    s = j.status != ST_OK ? j.status : take(all, out);
    arena_dispose(&j.arena);
    return s;
}
