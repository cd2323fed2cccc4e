#include "engine/text/template_content.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

/* ---- which forms a template takes ---- */

/* Letters only: white space, marks and cases are what templates change. */
static const char probe_text[] = "contentprobe";

/* One message from a user with this content; *out stays empty where the template fails on it. */
static void probe(const struct template *t, json_t *content, struct rendered *out)
{
    json_t *messages = json_pack("[{s:s, s:o}]", "role", "user", "content", content);
    const struct template_input in = {
        .messages = messages, .bos_token = "", .eos_token = "", .add_generation_prompt = true};

    if (messages != NULL && template_render(t, &in, out, NULL) != ST_OK)
        *out = (struct rendered){0};
    json_decref(messages);
}

static bool shows_text(const struct rendered *r)
{
    return r->text != NULL && strstr(r->text, probe_text) != NULL;
}

/* Python's or JSON's text of a list quotes what is in it. */
static bool shows_list(const struct rendered *r)
{
    const char *at = strstr(r->text, probe_text);

    return at != r->text && (at[-1] == '\'' || at[-1] == '"');
}

static bool are_alike(const struct rendered *a, const struct rendered *b)
{
    return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

unsigned template_content_forms(const struct template *t)
{
    struct rendered text = {0}, parts = {0};
    unsigned forms = CONTENT_TEXT;

    probe(t, json_string(probe_text), &text);
    probe(t, json_pack("[{s:s, s:s}]", "type", "text", "text", probe_text), &parts);
    if (shows_text(&text) && shows_text(&parts) && are_alike(&text, &parts))
        forms = CONTENT_TEXT | CONTENT_PARTS;
    else if (!shows_text(&text) && shows_text(&parts) && !shows_list(&parts))
        forms = CONTENT_PARTS;
    rendered_dispose(&text);
    rendered_dispose(&parts);
    return forms;
}

/* ---- messages in a form that fits ---- */

static const json_t *text_of_part(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");

    return type != NULL && strcmp(type, "text") == 0 && json_is_string(text) ? text : NULL;
}

static bool is_all_text(const json_t *parts)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        if (text_of_part(json_array_get(parts, i)) == NULL)
            return false;
    }
    return true;
}

/* A new string, or NULL. */
static json_t *join_parts(const json_t *parts)
{
    json_t *joined = NULL;
    struct buf text;

    buf_init(&text);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *one = text_of_part(json_array_get(parts, i));

        buf_append(&text, json_string_value(one), json_string_length(one));
    }
    if (!text.failed)
        joined = json_stringn_nocheck(text.data != NULL ? text.data : "", text.len);
    buf_dispose(&text);
    return joined;
}

/* Content in another form; NULL where it is fine as it is. *s: ST_NO_MEMORY. */
static json_t *reshape(unsigned forms, json_t *content, enum status *s)
{
    json_t *made;

    if (json_is_array(content) && (forms & CONTENT_PARTS) == 0 && is_all_text(content))
        made = join_parts(content);
    else if (json_is_string(content) && (forms & CONTENT_TEXT) == 0)
        made = json_pack("[{s:s, s:O}]", "type", "text", "text", content);
    else
        return NULL;
    if (made == NULL)
        *s = ST_NO_MEMORY;
    return made;
}

static enum status add_message(unsigned forms, json_t *message, json_t *list)
{
    enum status s = ST_OK;
    json_t *content = reshape(forms, json_object_get(message, "content"), &s), *copy;

    if (s != ST_OK || content == NULL)
        return s != ST_OK || json_array_append(list, message) != 0 ? ST_NO_MEMORY : ST_OK;
    copy = json_copy(message);
    if (copy == NULL || json_object_set_new(copy, "content", content) != 0 ||
        json_array_append_new(list, copy) != 0)
        return ST_NO_MEMORY;
    return ST_OK;
}

enum status template_shape_messages(unsigned forms, json_t *messages, json_t **out)
{
    json_t *list = json_array(), *message;
    enum status s = list != NULL ? ST_OK : ST_NO_MEMORY;
    size_t i;

    json_array_foreach(messages, i, message)
    {
        if (s == ST_OK)
            s = add_message(forms, message, list);
    }
    if (s != ST_OK) {
        json_decref(list);
        return s;
    }
    *out = list;
    return ST_OK;
}
