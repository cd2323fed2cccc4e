#include "engine/text/template_continue.h"

#include "engine/text/jinja_str.h"

/* The text is Hugging Face's, because some templates look for it. It ends in white space, so that a
 * template that trims shows. */
static const char tag_text[] = "CONTINUE_FINAL_MESSAGE_TAG ";
#define TAG_BYTES (sizeof tag_text - 1)

static void refuse(struct jinja *j, const char *what)
{
    if (j->status == ST_OK)
        j->status = fail_param(j->why, ST_INVALID, "continue_final_message", "%s", what);
}

static struct jval *member(struct jdict *d, const char *name)
{
    for (size_t i = 0; i < d->n; i++) {
        if (js_is(d->keys[i].s, name))
            return &d->values[i];
    }
    return NULL;
}

static struct jval *text_of_part(struct jval part)
{
    struct jval *text = part.type == JT_DICT ? member(part.dict, "text") : NULL;

    return text != NULL && text->type == JT_STRING ? text : NULL;
}

/* Where the tag goes; NULL: the last message has no text. */
static struct jval *last_text(struct jval messages)
{
    struct jval last, *content, *text = NULL;

    if (messages.type != JT_SEQ || messages.seq->n == 0)
        return NULL;
    last = messages.seq->items[messages.seq->n - 1];
    content = last.type == JT_DICT ? member(last.dict, "content") : NULL;
    if (content == NULL || content->type == JT_STRING || !jv_is_seq(*content, SEQ_LIST))
        return content != NULL && content->type == JT_STRING ? content : NULL;
    for (size_t i = content->seq->n; text == NULL && i > 0; i--)
        text = text_of_part(content->seq->items[i - 1]);
    return text;
}

const struct jstr *template_tag_last(struct jinja *j, struct jval messages)
{
    struct jval *at = last_text(messages);
    const struct jstr *text;

    if (at == NULL) {
        refuse(j, "'continue_final_message' needs a last message with a text.");
        return &js_empty;
    }
    text = at->s;
    at->s = js_concat(j, text, js_new(j, tag_text, TAG_BYTES, false));
    return text;
}

const struct jstr *template_cut_at_tag(struct jinja *j, const struct jstr *rendered,
                                       const struct jstr *text)
{
    const struct jstr tag = js_of(tag_text, TAG_BYTES - 1, false); /* its white space may be gone */
    size_t at = j->status == ST_OK ? js_rfind(j, rendered, &tag) : SIZE_MAX;
    const struct jstr *trimmed = jinja_strip(j, text, NULL, STRIP_LEFT | STRIP_RIGHT), *cut;

    if (at == SIZE_MAX || js_find(j, rendered, trimmed, 0) == SIZE_MAX) {
        refuse(j, "'continue_final_message': the chat template does not render the last message as "
                  "it stands.");
        return &js_empty;
    }
    cut = js_slice(j, rendered, 0, at);
    if (at + TAG_BYTES <= rendered->len && rendered->data[at + TAG_BYTES - 1] == ' ')
        return cut;
    return jinja_strip(j, cut, NULL, STRIP_RIGHT);
}
