#include "api/param_field.h"

#include <string.h>

/* ---- accepted, without effect on the answer ---- */

bool param_pass_text(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    return json_is_string(v) || param_wrong_type(f, "a string", v, e);
}

bool param_pass_object(const struct param_field *f, json_t *v, struct params *p,
                       struct api_error *e)
{
    (void)p;
    return json_is_object(v) || param_wrong_type(f, "an object", v, e);
}

bool param_pass_bool(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    return json_is_boolean(v) || param_wrong_type(f, "a boolean", v, e);
}

/* ---- known, not supported but for the neutral value ---- */

bool param_only_bool(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    if (!json_is_boolean(v))
        return param_wrong_type(f, "a boolean", v, e);
    return json_is_true(v) == (f->neutral != 0) || param_unsupported(f, e);
}

static bool is_word_of(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *s = list; s != NULL; s = strchr(s, '|')) {
        s += *s == '|';
        if (strcspn(s, "|") == len && memcmp(s, word, len) == 0)
            return true;
    }
    return false;
}

bool param_only_text(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    if (json_is_string(v) && is_word_of(f->neutral_text, json_string_value(v)))
        return true;
    return param_unsupported(f, e);
}

bool param_only_empty(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)p;
    if (json_is_array(v) || json_is_object(v))
        return json_array_size(v) + json_object_size(v) == 0 || param_unsupported(f, e);
    return param_wrong_type(f, f->neutral_text, v, e);
}

bool param_only_text_format(const struct param_field *f, json_t *v, struct params *p,
                            struct api_error *e)
{
    const char *type;

    (void)p;
    if (!json_is_object(v))
        return param_wrong_type(f, "an object", v, e);
    type = json_string_value(json_object_get(v, "type"));
    return (type != NULL && strcmp(type, "text") == 0) || param_unsupported(f, e);
}

bool param_only_text_modality(const struct param_field *f, json_t *v, struct params *p,
                              struct api_error *e)
{
    const char *one = json_string_value(json_array_get(v, 0));

    (void)p;
    if (!json_is_array(v))
        return param_wrong_type(f, "an array", v, e);
    return (json_array_size(v) == 1 && one != NULL && strcmp(one, "text") == 0) ||
           param_unsupported(f, e);
}

bool param_never(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    (void)v;
    (void)p;
    return param_unsupported(f, e);
}
