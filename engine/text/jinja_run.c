#include "engine/text/jinja_run.h"

#include <stdarg.h>
#include <stdio.h>

void jinja_raise(struct jinja *j, const char *fmt, ...)
{
    char what[240];
    va_list ap;

    if (j->status != ST_OK)
        return;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    j->status = fail(j->why, ST_INVALID, "the chat template failed on line %u: %s", j->line, what);
}

void jinja_stop(struct jinja *j, enum status st, const char *what)
{
    if (j->status == ST_OK)
        j->status = fail(j->why, st, "the chat template %s (line %u)", what, j->line);
}

bool jinja_charge(struct jinja *j, size_t steps)
{
    if (j->status != ST_OK)
        return false;
    if (steps > j->steps_left) {
        j->steps_left = 0;
        jinja_stop(j, ST_TIMEOUT, "takes too many steps");
        return false;
    }
    j->steps_left -= steps;
    return true;
}

void *jinja_alloc(struct jinja *j, size_t count, size_t bytes_each)
{
    void *p;

    if (j->status != ST_OK)
        return NULL;
    p = arena_array(&j->arena, count, bytes_each);
    if (p == NULL)
        jinja_stop(j, ST_TOO_LARGE, "needs too much memory");
    return p;
}

bool jinja_enter_value(struct jinja *j)
{
    if (!jinja_charge(j, 1))
        return false;
    if (j->value_depth >= JINJA_VALUE_DEPTH_MAX) {
        jinja_stop(j, ST_TOO_LARGE, "builds a value that is nested too deeply");
        return false;
    }
    j->value_depth++;
    return true;
}

void jinja_leave_value(struct jinja *j)
{
    j->value_depth--;
}
