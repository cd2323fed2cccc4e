/* Outcomes of everything that can fail, and the reason text that goes with one.
 *
 * A function that can fail returns enum status and is MUST_CHECK; results leave by out-parameter
 * and are untouched on failure. A struct reason is filled by the code that knows the detail (a
 * parser, a validator); it never holds a secret, a prompt or a completion. Any thread. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stddef.h>

#define MUST_CHECK             __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* name, text for people */
#define STATUS_TABLE(X)                                                                            \
    X(OK, "ok")                                                                                    \
    X(INVALID, "invalid input")                                                                    \
    X(UNSUPPORTED, "not supported")                                                                \
    X(NOT_FOUND, "not found")                                                                      \
    X(UNAUTHENTICATED, "no valid credential")                                                      \
    X(FORBIDDEN, "not allowed")                                                                    \
    X(TOO_LARGE, "too large")                                                                      \
    X(TOO_LONG, "does not fit the context")                                                        \
    X(LIMITED, "rate limit reached")                                                               \
    X(OVERLOADED, "overloaded, try again later")                                                   \
    X(UNAVAILABLE, "a part of the service is away, try again later")                               \
    X(TIMEOUT, "took too long")                                                                    \
    X(CANCELLED, "cancelled")                                                                      \
    X(CORRUPT, "damaged data")                                                                     \
    X(IO, "input or output failed")                                                                \
    X(NO_SPACE, "no space left")                                                                   \
    X(NO_MEMORY, "out of memory")                                                                  \
    X(CONFLICT, "conflicts with what is there")                                                    \
    X(CLOSED, "closed")                                                                            \
    X(INTERNAL, "internal error")                                                                  \
    X(NO_CHOICE, "no token was allowed")                                                           \
    X(ASLEEP, "not loaded; a request loads it")

enum status {
#define STATUS_ENUM(name, text) ST_##name,
    STATUS_TABLE(STATUS_ENUM)
#undef STATUS_ENUM
        STATUS_COUNT
};

/* "OK", "INVALID", ...: static storage, for logs. */
const char *status_name(enum status s);
/* A short sentence for people: static storage. */
const char *status_text(enum status s);

/* Why something failed: one sentence, and the request field or file key it is about ("" if none).
 */
struct reason {
    char text[320];
    char param[96];
};

/* Fills *why (may be NULL; then nothing) and returns `s`, so that a parser can say
 * `return fail(why, ST_CORRUPT, "tensor %s lies past the end", name);`. Cuts long text. */
enum status fail(struct reason *why, enum status s, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* The same, naming the field at fault. */
enum status fail_param(struct reason *why, enum status s, const char *param, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

#endif
