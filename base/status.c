#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    const char *text;
} table[STATUS_COUNT] = {
#define STATUS_ROW(name, text) [ST_##name] = {#name, text},
    STATUS_TABLE(STATUS_ROW)
#undef STATUS_ROW
};

const char *status_name(enum status s)
{
    return (unsigned)s < STATUS_COUNT ? table[s].name : "?";
}

const char *status_text(enum status s)
{
    return (unsigned)s < STATUS_COUNT ? table[s].text : "?";
}

enum status fail(struct reason *why, enum status s, const char *fmt, ...)
{
    va_list args;

    if (why == NULL)
        return s;
    why->param[0] = '\0';
    va_start(args, fmt);
    vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    return s;
}

enum status fail_param(struct reason *why, enum status s, const char *param, const char *fmt, ...)
{
    va_list args;

    if (why == NULL)
        return s;
    snprintf(why->param, sizeof why->param, "%s", param);
    va_start(args, fmt);
    vsnprintf(why->text, sizeof why->text, fmt, args);
    va_end(args);
    return s;
}
