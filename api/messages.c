#include "api/messages.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"

#define PATH_BYTES 80

const char *json_kind(const json_t *v)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a decimal", [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",    [JSON_NULL] = "null",
    };

    return v == NULL ? "nothing" : kinds[json_typeof(v)];
}

static bool wrong_type(struct api_error *e, const char *param, const char *want, const json_t *got)
{
    return error_set(e, ERROR_TYPE, param,
                     "Invalid type for '%s': expected %s, but got %s instead.", param, want,
                     json_kind(got));
}

struct role {
    const char *name;
    const char *as; /* NULL: known, not supported */
};

static const struct role roles[] = {
    {"system", "system"},       {"developer", "system"}, {"user", "user"},
    {"assistant", "assistant"}, {"tool", NULL},          {"function", NULL},
};

/* *out is the role as the template knows it. */
static bool parse_role(const json_t *message, size_t i, const char **out, struct api_error *e)
{
    const json_t *v = json_object_get(message, "role");
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "messages[%zu].role", i);
    if (v == NULL)
        return error_set(e, ERROR_MISSING, path, "Missing required parameter: '%s'.", path);
    if (!json_is_string(v))
        return wrong_type(e, path, "a string", v);
    for (size_t k = 0; k < COUNT_OF(roles); k++) {
        if (strcmp(json_string_value(v), roles[k].name) != 0)
            continue;
        if (roles[k].as == NULL)
            return error_set(e, ERROR_UNSUPPORTED, path, "Messages of role '%s' are not supported.",
                             roles[k].name);
        *out = roles[k].as;
        return true;
    }
    return error_set(e, ERROR_VALUE, path,
                     "Invalid value for '%s': expected one of 'system', 'developer', 'user' and "
                     "'assistant'.",
                     path);
}

/* `path` is the part's; its members are at fault more often than the part itself. */
static bool append_part(const json_t *part, const char *path, json_t *list, struct api_error *e)
{
    char member[PATH_BYTES + 32];
    json_t *v;

    if (!json_is_object(part))
        return wrong_type(e, path, "an object", part);
    snprintf(member, sizeof member, "%s.type", path);
    v = json_object_get(part, "type");
    if (!json_is_string(v))
        return wrong_type(e, member, "a string", v);
    if (strcmp(json_string_value(v), "text") != 0)
        return error_set(e, ERROR_UNSUPPORTED, member,
                         "Content parts other than of type 'text' are not supported.");
    snprintf(member, sizeof member, "%s.text", path);
    v = json_object_get(part, "text");
    if (!json_is_string(v))
        return wrong_type(e, member, "a string", v);
    if (json_array_append_new(list, json_pack("{s:s, s:O}", "type", "text", "text", v)) != 0)
        return error_set(e, ERROR_INTERNAL, "", "Out of memory.");
    return true;
}

/* The parts of one message, in order, without members that we don't know. */
static json_t *parse_parts(const json_t *parts, const char *path, struct api_error *e)
{
    json_t *list;
    size_t k;
    const json_t *part;

    if (json_array_size(parts) == 0) {
        error_set(e, ERROR_VALUE, path, "Invalid value for '%s': the array is empty.", path);
        return NULL;
    }
    list = json_array();
    if (list == NULL)
        error_set(e, ERROR_INTERNAL, "", "Out of memory.");
    json_array_foreach(parts, k, part)
    {
        char part_path[PATH_BYTES + 24];

        snprintf(part_path, sizeof part_path, "%s[%zu]", path, k);
        if (list != NULL && !append_part(part, part_path, list, e)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* A new reference, or NULL with *e. */
static json_t *parse_content(const json_t *message, size_t i, const char *role, struct api_error *e)
{
    json_t *v = json_object_get(message, "content");
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "messages[%zu].content", i);
    if (json_is_string(v))
        return json_incref(v);
    if (json_is_array(v))
        return parse_parts(v, path, e);
    if ((v == NULL || json_is_null(v)) && strcmp(role, "assistant") == 0)
        return json_string("");
    if (v == NULL)
        error_set(e, ERROR_MISSING, path, "Missing required parameter: '%s'.", path);
    else
        wrong_type(e, path, "a string or an array of text parts", v);
    return NULL;
}

static bool check_unsupported(const json_t *message, size_t i, struct api_error *e)
{
    static const char *const fields[] = {"tool_calls", "function_call", "audio"};
    char path[PATH_BYTES];

    for (size_t k = 0; k < COUNT_OF(fields); k++) {
        const json_t *v = json_object_get(message, fields[k]);

        if (v == NULL || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0))
            continue;
        snprintf(path, sizeof path, "messages[%zu].%s", i, fields[k]);
        return error_set(e, ERROR_UNSUPPORTED, path, "'%s' is not supported.", path);
    }
    return true;
}

static bool parse_name(json_t *message, size_t i, json_t *to, struct api_error *e)
{
    json_t *v = json_object_get(message, "name");
    char path[PATH_BYTES];

    if (v == NULL || json_is_null(v))
        return true;
    snprintf(path, sizeof path, "messages[%zu].name", i);
    if (!json_is_string(v))
        return wrong_type(e, path, "a string", v);
    if (json_object_set(to, "name", v) != 0)
        return error_set(e, ERROR_INTERNAL, "", "Out of memory.");
    return true;
}

static bool parse_message(json_t *message, size_t i, json_t *list, struct api_error *e)
{
    char path[PATH_BYTES];
    const char *role = "";
    json_t *content, *made;

    snprintf(path, sizeof path, "messages[%zu]", i);
    if (!json_is_object(message))
        return wrong_type(e, path, "an object", message);
    if (!parse_role(message, i, &role, e) || !check_unsupported(message, i, e))
        return false;
    content = parse_content(message, i, role, e);
    if (content == NULL)
        return false;
    made = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (made == NULL || json_array_append_new(list, made) != 0)
        return error_set(e, ERROR_INTERNAL, "", "Out of memory.");
    return parse_name(message, i, made, e);
}

bool messages_parse(json_t *messages, json_t **out, struct api_error *e)
{
    json_t *list, *message;
    size_t i;

    if (messages == NULL || json_is_null(messages))
        return error_set(e, ERROR_MISSING, "messages", "Missing required parameter: 'messages'.");
    if (!json_is_array(messages))
        return wrong_type(e, "messages", "an array of objects", messages);
    if (json_array_size(messages) == 0)
        return error_set(e, ERROR_VALUE, "messages",
                         "Invalid value for 'messages': expected at least one message.");
    list = json_array();
    if (list == NULL)
        return error_set(e, ERROR_INTERNAL, "", "Out of memory.");
    json_array_foreach(messages, i, message)
    {
        if (!parse_message(message, i, list, e)) {
            json_decref(list);
            return false;
        }
    }
    *out = list;
    return true;
}

static bool parse_ids(json_t *ids, struct params *out, struct api_error *e)
{
    size_t i;
    const json_t *v;

    json_array_foreach(ids, i, v)
    {
        char path[PATH_BYTES];

        if (json_is_integer(v))
            continue;
        snprintf(path, sizeof path, "prompt[%zu]", i);
        return wrong_type(e, path, "an integer", v);
    }
    out->kind = ENGINE_PROMPT_IDS;
    out->ids = ids;
    return true;
}

static bool parse_text(const json_t *text, struct params *out, struct api_error *e)
{
    if (json_string_length(text) == 0)
        return error_set(e, ERROR_VALUE, "prompt", "Invalid value for 'prompt': it is empty.");
    out->kind = ENGINE_PROMPT_TEXT;
    out->text = json_string_value(text);
    out->text_len = json_string_length(text);
    return true;
}

bool prompt_parse(json_t *prompt, struct params *out, struct api_error *e)
{
    json_t *first;

    if (prompt == NULL || json_is_null(prompt))
        return error_set(e, ERROR_MISSING, "prompt", "Missing required parameter: 'prompt'.");
    if (json_is_string(prompt))
        return parse_text(prompt, out, e);
    if (!json_is_array(prompt))
        return wrong_type(e, "prompt", "a string or an array", prompt);
    if (json_array_size(prompt) == 0)
        return error_set(e, ERROR_VALUE, "prompt", "Invalid value for 'prompt': it is empty.");
    first = json_array_get(prompt, 0);
    if (json_is_integer(first))
        return parse_ids(prompt, out, e);
    if (!json_is_string(first) && !json_is_array(first))
        return wrong_type(e, "prompt[0]", "a string, an integer or an array of integers", first);
    if (json_array_size(prompt) > 1)
        return error_set(e, ERROR_UNSUPPORTED, "prompt",
                         "More than one prompt in a request is not supported.");
    if (json_is_string(first))
        return parse_text(first, out, e);
    if (json_array_size(first) == 0)
        return error_set(e, ERROR_VALUE, "prompt", "Invalid value for 'prompt': it is empty.");
    return parse_ids(first, out, e);
}
