/* One line per event on standard error: time, level, event name, request id, key=value details.
 * Never a secret, a prompt or a completion. The only global of the house. Any thread. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Lines below `level` are dropped. `process` ("gateway", "engine") leads each line. Call once at
 * start, before threads. */
void log_init(const char *process, enum log_level level);
/* `request` is the request id as clients see it, or NULL. `event` is dotted: "quota.reserve".
 * Whatever a caller passes makes one line: control characters and bytes that are no UTF-8 are
 * replaced, and what is over 1 KiB is cut. */
void log_write(enum log_level level, const char *request, const char *event, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

#endif
