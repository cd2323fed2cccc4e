#include "api/param_field.h"

#include <inttypes.h>

#include "api/messages.h"
#include "base/json.h"

bool param_wrong_type(const struct param_field *f, const char *want, const json_t *got,
                      struct api_error *e)
{
    return error_set(e, ERROR_TYPE, f->name,
                     "Invalid type for '%s': expected %s, but got %s instead.", f->name, want,
                     json_kind(got));
}

bool param_unsupported(const struct param_field *f, struct api_error *e)
{
    return error_set(e, ERROR_UNSUPPORTED, f->name,
                     "'%s' is not supported with this value. Leave it out or give its default.",
                     f->name);
}

/* An integer outside int64 arrives as a real (json_parse_huge). */
bool param_int(const struct param_field *f, const json_t *v, int64_t *out, struct api_error *e)
{
    const bool is_huge = json_is_real(v) && json_has_huge(v);
    int64_t x;

    if (!json_is_integer(v) && !is_huge)
        return param_wrong_type(f, "an integer", v, e);
    x = json_integer_value(v);
    if (is_huge || x < f->min || x > f->max)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': expected an integer from %" PRId64 " to %" PRId64
                         ".",
                         f->name, f->min, f->max);
    *out = x;
    return true;
}

bool param_real(const struct param_field *f, const json_t *v, double *out, struct api_error *e)
{
    double x;

    if (!json_is_number(v))
        return param_wrong_type(f, "a number", v, e);
    x = json_number_value(v);
    if (x < (double)f->min || x > (double)f->max)
        return error_set(e, ERROR_VALUE, f->name,
                         "Invalid value for '%s': expected a number from %" PRId64 " to %" PRId64
                         ".",
                         f->name, f->min, f->max);
    *out = x;
    return true;
}

static void *target(const struct param_field *f, struct params *p)
{
    return (char *)p + f->offset;
}

bool param_take_bool(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    if (!json_is_boolean(v))
        return param_wrong_type(f, "a boolean", v, e);
    *(bool *)target(f, p) = json_is_true(v);
    return true;
}

bool param_take_int(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    return param_int(f, v, target(f, p), e);
}

bool param_take_real(const struct param_field *f, json_t *v, struct params *p, struct api_error *e)
{
    return param_real(f, v, target(f, p), e);
}
