/* What a client sees when a request fails: one table of HTTP status, OpenAI type and code, and the
 * error object with its four members. Pure; any thread. */
#ifndef API_ERRORS_H
#define API_ERRORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* name, HTTP status, type, code (NULL: null), a client may try the same again, default message */
#define ERROR_TABLE(X)                                                                             \
    X(MALFORMED, 400, "invalid_request_error", NULL, false, "The request could not be read.")      \
    X(VALUE, 400, "invalid_request_error", "invalid_value", false, "A field has a bad value.")     \
    X(TYPE, 400, "invalid_request_error", "invalid_type", false, "A field has the wrong type.")    \
    X(MISSING, 400, "invalid_request_error", "missing_required_parameter", false,                  \
      "A required field is missing.")                                                              \
    X(UNSUPPORTED, 400, "invalid_request_error", "unsupported_parameter", false,                   \
      "A field is not supported.")                                                                 \
    X(CONTEXT, 400, "invalid_request_error", "context_length_exceeded", false,                     \
      "The prompt does not fit the model's context.")                                              \
    X(ANSWER, 400, "invalid_request_error", "answer_too_large", false,                             \
      "The answer is larger than one may be. Stream it, or ask for fewer choices, tokens or "      \
      "log-probabilities.")                                                                        \
    X(NO_CHOICE, 400, "invalid_request_error", "no_token_allowed", false,                          \
      "No token was allowed: logit_bias, min_tokens and stop ids leave none to choose.")           \
    X(API_KEY, 401, "invalid_request_error", "invalid_api_key", false,                             \
      "Incorrect API key provided.")                                                               \
    X(SCOPE, 403, "invalid_request_error", "insufficient_permissions", false,                      \
      "This API key may not use this endpoint.")                                                   \
    X(MODEL, 404, "invalid_request_error", "model_not_found", false,                               \
      "The model does not exist or you do not have access to it.")                                 \
    X(URL, 404, "invalid_request_error", "unknown_url", false, "Unknown request URL.")             \
    X(METHOD, 405, "invalid_request_error", "method_not_allowed", false,                           \
      "This method is not allowed here.")                                                          \
    X(BODY, 413, "invalid_request_error", "request_too_large", false,                              \
      "The request body is too large.")                                                            \
    X(RATE_REQUESTS, 429, "requests", "rate_limit_exceeded", true, "Rate limit reached.")          \
    X(RATE_TOKENS, 429, "tokens", "rate_limit_exceeded", true, "Rate limit reached.")              \
    X(RATE_NEVER, 429, "tokens", "rate_limit_exceeded", false,                                     \
      "The request asks for more tokens than the rate limit ever allows at once.")                 \
    X(GONE, 499, "invalid_request_error", "client_closed_request", false,                          \
      "The client closed the request.")                                                            \
    X(INTERNAL, 500, "server_error", "internal_error", true,                                       \
      "The server had an error while processing your request.")                                    \
    X(OVERLOADED, 503, "server_error", "overloaded", true,                                         \
      "The server is overloaded. Please try again later.")                                         \
    X(ANSWERS, 503, "server_error", "overloaded", true,                                            \
      "The server ended this answer early: more wait for their clients than it can hold. What "    \
      "was "                                                                                       \
      "generated is billed.")                                                                      \
    X(UNAVAILABLE, 503, "server_error", "service_unavailable", true,                               \
      "A part of the service is away. Please try again later.")                                    \
    X(LOADING, 503, "server_error", "model_loading", true,                                         \
      "The model is still being loaded. Please try again later.")                                  \
    X(NO_PRICE, 503, "server_error", "model_not_priced", false,                                    \
      "The model has no price in force, so it can't be used. Please tell the operator.")           \
    X(TIMEOUT, 504, "server_error", "timeout", false, "The request took too long and was ended.")

enum error_kind {
    ERROR_NONE,
#define ERROR_ENUM(name, http, type, code, retry, text) ERROR_##name,
    ERROR_TABLE(ERROR_ENUM)
#undef ERROR_ENUM
        ERROR_COUNT
};

struct error_info {
    int http;
    const char *type, *code; /* code NULL: null */
    bool retry;              /* x-should-retry */
    const char *text;
};

/* One failure: `reason` may be empty (then the table's text); its param "" is written as null. */
struct api_error {
    enum error_kind kind;
    struct reason reason;
    int64_t retry_after_ms; /* 0: no retry-after header */
};

const struct error_info *error_info(enum error_kind kind);
/* Fills *e and returns false, so that a parser can say `return error_set(e, ERROR_TYPE, …);`.
 * `param` "" when no field is at fault. */
bool error_set(struct api_error *e, enum error_kind kind, const char *param, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
/* Appends {"error":{"message":…,"type":…,"param":…,"code":…}}. */
void error_put(struct buf *b, const struct api_error *e);
/* What a failed part means to the client. */
enum error_kind error_from_status(enum status s);

#endif
