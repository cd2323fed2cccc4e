#include "base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

#define LINE_BYTES 1024

static struct {
    const char *process;
    enum log_level level;
} logger = {.process = "sluice", .level = LOG_INFO};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(const char *process, enum log_level level)
{
    logger.process = process;
    logger.level = level;
}

static size_t put_head(char *line, size_t cap, enum log_level level, const char *request,
                       const char *event)
{
    int64_t us = clock_wall_us();
    time_t s = (time_t)(us / 1000000);
    struct tm tm;
    int n;

    gmtime_r(&s, &tm);
    n = snprintf(line, cap, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ %s %s %s%s%s ", tm.tm_year + 1900,
                 tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                 (int)(us / 1000 % 1000), level_names[level], logger.process, event,
                 request != NULL ? " request=" : "", request != NULL ? request : "");
    return (size_t)n < cap ? (size_t)n : cap - 1;
}

/* In place: nothing that ends a line or steers a terminal (C0, DEL, C1), nothing that is no UTF-8.
 * Returns the length, less where a `cut` went through the last character. */
static size_t clean(char *line, size_t len, bool cut)
{
    for (size_t i = 0; i < len;) {
        uint32_t cp = '?';
        const int n = utf8_decode(line + i, len - i, &cp);

        if (n == -1 && cut)
            return i;
        if (n <= 0)
            line[i] = '?';
        else if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0))
            memset(line + i, ' ', (size_t)n);
        i += n > 0 ? (size_t)n : 1;
    }
    return len;
}

void log_write(enum log_level level, const char *request, const char *event, const char *fmt, ...)
{
    char line[LINE_BYTES];
    size_t at, end;
    va_list args;
    int n;

    if (level < logger.level)
        return;
    at = put_head(line, sizeof line - 1, level, request, event);
    va_start(args, fmt);
    n = vsnprintf(line + at, sizeof line - 1 - at, fmt, args);
    va_end(args);
    end = at + (n < 0 ? 0 : (size_t)n);
    if (end > sizeof line - 2)
        end = sizeof line - 2;
    end = clean(line, end, end == sizeof line - 2);
    line[end] = '\n';
    /* One write, so that lines of several threads and processes don't mix; a full or closed
     * standard error must not stop the service, so a failure is ignored. */
    if (write(STDERR_FILENO, line, end + 1) == -1)
        return;
}
