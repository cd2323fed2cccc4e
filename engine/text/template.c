#include "engine/text/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/jinja_eval.h"
#include "engine/text/jinja_parse.h"

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

/* Variables as Hugging Face's apply_chat_template passes them: the extra ones first, so that they
 * can't take the place of the others. */
static void bind_input(struct jinja *j, const struct template_input *in)
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
    jinja_bind(j, "messages", jinja_from_json(j, in->messages));
    jinja_bind(j, "add_generation_prompt", jv_bool(in->add_generation_prompt));
}

/* Copies the output out of the arena. */
static enum status take(const struct jtext *t, struct rendered *out)
{
    struct rendered r = {.len = t->len, .n_spans = t->n_runs};
    size_t start = 0;

    r.text = malloc(t->len + 1);
    r.spans = calloc(t->n_runs + 1, sizeof *r.spans);
    if (r.text == NULL || r.spans == NULL) {
        rendered_dispose(&r);
        return ST_NO_MEMORY;
    }
    if (t->len != 0)
        memcpy(r.text, t->data, t->len);
    r.text[t->len] = '\0';
    for (size_t i = 0; i < t->n_runs; i++) {
        size_t end = t->runs[i].end;

        r.spans[i] = (struct rendered_span){start, end - start, t->runs[i].from_template};
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
    struct jtext text;
    enum status s;

    arena_init(&j.arena, JINJA_MEMORY_MAX);
    jt_init(&text, &j);
    j.out = &text;
    j.scope = jinja_scope_new(&j, NULL);
    if (j.scope != NULL) {
        bind_input(&j, in);
        jinja_run_body(&j, t->body);
    }
    s = j.status != ST_OK ? j.status : take(&text, out);
    arena_dispose(&j.arena);
    return s;
}
