/* Answers that are sent whole, and the headers that every answer has. The client may be gone:
 * then these do nothing. */
#ifndef API_RESPOND_H
#define API_RESPOND_H

#include <stddef.h>

#include "api/request.h"

/* Sets status and the common headers (request id, processing time, rates) on r->http. */
void respond_head(struct request *r, int http_status, const char *content_type);
/* `name` static and in lower case; `value` is copied. */
void respond_header(struct request *r, const char *name, const char *value);
/* Sends the whole answer; `body` is copied. */
void respond(struct request *r, int http_status, const char *content_type, const char *body,
             size_t len);
void respond_json(struct request *r, int http_status, const struct buf *body);
void respond_error(struct request *r, const struct api_error *e);

#endif
