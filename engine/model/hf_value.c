#include "engine/model/hf_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void hf_refuse(struct hf_reader *r, enum status s, const char *key, const char *fmt, ...)
{
    char text[sizeof r->why->text];
    va_list ap;

    if (r->status != ST_OK)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->status = fail_param(r->why, s, key, "%s", text);
}

json_t *hf_value(const struct hf_reader *r, const char *key)
{
    json_t *v = json_object_get(r->object, key);

    return v != NULL && !json_is_null(v) ? v : NULL;
}

double hf_number(struct hf_reader *r, const char *key, double fallback)
{
    json_t *v = json_object_get(r->object, key);
    double x;

    if (v == NULL)
        for (const struct hf_default *d = r->defaults; d != NULL && d->key != NULL; d++)
            if (strcmp(d->key, key) == 0)
                return d->value;
    if (v == NULL || json_is_null(v)) {
        if (fallback == HF_REQUIRED)
            hf_refuse(r, ST_CORRUPT, key, "config.json lacks %s", key);
        return fallback;
    }
    x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x < 0) {
        hf_refuse(r, ST_CORRUPT, key, "config.json: %s is no number from 0", key);
        return fallback;
    }
    return x;
}

uint32_t hf_size(struct hf_reader *r, const char *key, double fallback, uint32_t max)
{
    double v = hf_number(r, key, fallback);

    if (v == HF_REQUIRED) /* failed */
        return 1;
    if (v != floor(v) || v > max) {
        hf_refuse(r, ST_UNSUPPORTED, key, "config.json: %s is no whole number up to %u", key, max);
        return 1;
    }
    return (uint32_t)v;
}

bool hf_flag(struct hf_reader *r, const char *key, bool fallback)
{
    json_t *v = hf_value(r, key);

    if (v == NULL)
        return fallback;
    if (!json_is_boolean(v))
        hf_refuse(r, ST_CORRUPT, key, "config.json: %s is neither true nor false", key);
    return json_is_true(v);
}

const char *hf_word(struct hf_reader *r, const char *key, const char *fallback)
{
    json_t *v = hf_value(r, key);

    if (v == NULL)
        return fallback;
    if (!json_is_string(v)) {
        hf_refuse(r, ST_CORRUPT, key, "config.json: %s is no string", key);
        return fallback;
    }
    return json_string_value(v);
}
