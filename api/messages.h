/* The `messages` and `prompt` fields: from OpenAI's many forms to the one that the engine takes.
 * Part of params_parse. */
#ifndef API_MESSAGES_H
#define API_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>

#include "api/errors.h"
#include "api/params.h"

/* Builds a new array of {role, content[, name]}: content is a string or an array of {type: "text",
 * text}, `developer` becomes `system`, an assistant's null content the empty string. */
MUST_CHECK bool messages_parse(json_t *messages, json_t **out, struct api_error *e);
/* A string, an array of one string, an array of ids, an array of one array of ids. */
MUST_CHECK bool prompt_parse(json_t *prompt, struct params *out, struct api_error *e);
/* "a string", "an array", …: for messages about types. */
const char *json_kind(const json_t *v);

#endif
