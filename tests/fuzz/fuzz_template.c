/* A template's source, and after a NUL the content of a message. What renders is valid UTF-8, its
 * spans cover it, and no byte of the message counts as the template's. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/text/template.h"
#include "engine/text/template_content.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A private-use character that stands in every message. */
static const char mark[] = "\xee\x80\x80";

static json_t *make_messages(const char *content, size_t len)
{
    if (!utf8_is_valid(content, len))
        len = 0;
    return json_pack("[{s:s, s:s}, {s:s, s:s%+%, s:[{s:s, s:i}]}, {s:n, s:f}]", "role", "system",
                     "content", mark, "role", "user", "content", mark, (size_t)(sizeof mark - 1),
                     content, len, "parts", "text", mark, "number", 7, "nothing", "float", 0.5);
}

static void check(const struct rendered *r, bool mark_is_foreign)
{
    size_t end = 0;

    if (!utf8_is_valid(r->text, r->len))
        abort();
    for (size_t i = 0; i < r->n_spans; i++) {
        const struct rendered_span *s = &r->spans[i];

        if (s->start != end || s->len == 0)
            abort();
        end += s->len;
        if (s->from_template && mark_is_foreign &&
            memmem(r->text + s->start, s->len, mark, sizeof mark - 1) != NULL)
            abort();
    }
    if (end != r->len)
        abort();
}

/* Each message comes out, whatever the template says of its forms. */
static void check_shapes(const struct template *t, json_t *messages)
{
    unsigned forms = template_content_forms(t);
    json_t *shaped = NULL;

    if ((forms & ~(unsigned)(CONTENT_TEXT | CONTENT_PARTS)) != 0 || forms == 0 ||
        template_shape_messages(forms, messages, &shaped) != ST_OK ||
        json_array_size(shaped) != json_array_size(messages))
        abort();
    json_decref(shaped);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *source = (const char *)data;
    const char *nul = memchr(source, '\0', size);
    size_t len = nul == NULL ? size : (size_t)(nul - source);
    /* A template may write the mark itself, also as an escape. */
    bool foreign =
        memmem(source, len, mark, sizeof mark - 1) == NULL && memchr(source, '\\', len) == NULL;
    struct template_input in = {
        .bos_token = "<s>", .eos_token = "</s>", .add_generation_prompt = true};
    struct template *t = NULL;
    struct rendered r = {0};
    struct reason why;
    json_t *messages, *extra;

    if (template_new(source, len, &t, &why) != ST_OK)
        return 0;
    messages = make_messages(nul == NULL ? "" : nul + 1, nul == NULL ? 0 : size - len - 1);
    extra = json_pack("{s:{s:[i, i], s:b}, s:s}", "d", "l", 3, 1, "t", 1, "s", mark);
    if (messages == NULL || extra == NULL)
        abort();
    in.messages = messages;
    in.extra = extra;
    if (template_render(t, &in, &r, &why) == ST_OK)
        check(&r, foreign);
    rendered_dispose(&r);
    in.add_generation_prompt = false;
    in.continue_final_message = true;
    in.tools = in.documents = messages;
    if (template_render(t, &in, &r, &why) == ST_OK)
        check(&r, foreign);
    rendered_dispose(&r);
    check_shapes(t, messages);
    template_free(t);
    json_decref(messages);
    json_decref(extra);
    return 0;
}
