#include "base/log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

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
    for (size_t i = at; i < end; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7F)
            line[i] = ' ';
    line[end] = '\n';
    /* One write, so that lines of several threads and processes don't mix; a full or closed
     * standard error must not stop the service, so a failure is ignored. */
    if (write(STDERR_FILENO, line, end + 1) == -1)
        return;
}
