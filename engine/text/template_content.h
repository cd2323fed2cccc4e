/* How a chat template takes the content of a message: as a string, as an array of text parts
 * ({"type": "text", "text": ...}), or as either. Clients send both; a template that gets the other
 * form prints Python's text of a list, or nothing at all. Any thread. */
#ifndef ENGINE_TEXT_TEMPLATE_CONTENT_H
#define ENGINE_TEXT_TEMPLATE_CONTENT_H

#include <jansson.h>

#include "base/status.h"
#include "engine/text/template.h"

enum content_form { CONTENT_TEXT = 1, CONTENT_PARTS = 2 };

/* The forms that the template takes, found by rendering one message each way. Both, where the two
 * come out alike; CONTENT_TEXT where nothing could be found out. */
unsigned template_content_forms(const struct template *t);

/* A new array of the messages with each content in one of `forms`: text parts are joined in order,
 * or a string becomes one part. What fits (and content with parts that are no text) is shared with
 * `messages`. ST_NO_MEMORY. */
MUST_CHECK enum status template_shape_messages(unsigned forms, json_t *messages, json_t **out);

#endif
