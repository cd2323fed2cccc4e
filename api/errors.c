#include "api/errors.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/json.h"
#include "base/size.h"

static const struct error_info error_table[ERROR_COUNT] = {
#define ERROR_ROW(name, http, type, code, retry, text)                                             \
    [ERROR_##name] = {http, type, code, retry, text},
    ERROR_TABLE(ERROR_ROW)
#undef ERROR_ROW
};

const struct error_info *error_info(enum error_kind kind)
{
    assert(kind > ERROR_NONE && kind < ERROR_COUNT);
    return &error_table[kind];
}

bool error_set(struct api_error *e, enum error_kind kind, const char *param, const char *fmt, ...)
{
    va_list args;

    *e = (struct api_error){.kind = kind};
    snprintf(e->reason.param, sizeof e->reason.param, "%s", param);
    va_start(args, fmt);
    vsnprintf(e->reason.text, sizeof e->reason.text, fmt, args);
    va_end(args);
    return false;
}

static void put_nullable(struct buf *b, const char *s)
{
    if (s == NULL || s[0] == '\0')
        buf_puts(b, "null");
    else
        json_put_cstr(b, s);
}

void error_put(struct buf *b, const struct api_error *e)
{
    const struct error_info *info = error_info(e->kind);

    buf_puts(b, "{\"error\":{\"message\":");
    json_put_cstr(b, e->reason.text[0] != '\0' ? e->reason.text : info->text);
    buf_puts(b, ",\"type\":");
    json_put_cstr(b, info->type);
    buf_puts(b, ",\"param\":");
    put_nullable(b, e->reason.param);
    buf_puts(b, ",\"code\":");
    put_nullable(b, info->code);
    buf_puts(b, "}}");
}

enum error_kind error_from_status(enum status s)
{
    static const enum error_kind kinds[STATUS_COUNT] = {
        [ST_INVALID] = ERROR_VALUE,         [ST_UNSUPPORTED] = ERROR_UNSUPPORTED,
        [ST_NOT_FOUND] = ERROR_MODEL,       [ST_UNAUTHENTICATED] = ERROR_API_KEY,
        [ST_FORBIDDEN] = ERROR_SCOPE,       [ST_TOO_LARGE] = ERROR_BODY,
        [ST_TOO_LONG] = ERROR_CONTEXT,      [ST_LIMITED] = ERROR_RATE_REQUESTS,
        [ST_OVERLOADED] = ERROR_OVERLOADED, [ST_UNAVAILABLE] = ERROR_UNAVAILABLE,
        [ST_TIMEOUT] = ERROR_TIMEOUT,       [ST_CANCELLED] = ERROR_UNAVAILABLE,
        [ST_NO_SPACE] = ERROR_UNAVAILABLE,  [ST_IO] = ERROR_UNAVAILABLE,
        [ST_CLOSED] = ERROR_UNAVAILABLE,    [ST_NO_CHOICE] = ERROR_NO_CHOICE,
        [ST_ASLEEP] = ERROR_LOADING,
    };

    return kinds[s] != ERROR_NONE ? kinds[s] : ERROR_INTERNAL;
}
