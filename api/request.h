/* A request of ours: a heap job with two sides that end on their own.
 *
 * The HTTP side is H2O's h2o_req_t, which may be freed at any moment (on HTTP/2 by a reset before
 * the answer starts, without any call to `stop`): only `http` points to it, and a hook in its pool
 * clears that. The work side is a row of stages, each of which may wait for a callback; every
 * callback comes, also after the client has gone. The memory is freed when both sides are over.
 * Belongs to its loop's thread. */
#ifndef API_REQUEST_H
#define API_REQUEST_H

#include <h2o.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/connection.h"
#include "api/errors.h"
#include "auth/auth.h"
#include "base/id.h"
#include "quota/quota.h"

#define REQUEST_NAME_BYTES (ID_HEX_BYTES + 4)

struct api_loop;
struct request;

/* True: go on with the next stage. False: it waits (and request_continue comes), or it ended. */
typedef bool (*request_stage)(struct request *r);

struct handler {
    const request_stage *stages; /* NULL-terminated */
    /* The client has gone (ERROR_GONE) or the request must end for another reason while its work
     * goes on: hasten the end. May be NULL: the work is short. */
    void (*on_cancel)(struct request *r, enum error_kind why);
    void (*dispose)(struct request *r); /* frees r->state; may be NULL */
};

struct route;

struct request {
    h2o_req_t *http;         /* NULL once H2O freed it */
    struct connection *conn; /* valid while http is */
    struct api_loop *loop;
    const struct route *route;
    struct request *prev, *next; /* of the loop's live list */
    struct id id;
    char name[REQUEST_NAME_BYTES]; /* "req_…": x-request-id, and in the log */
    int64_t begin_ms, begin_us;    /* monotonic */
    int64_t begin_wall_us;
    size_t body_bytes;
    size_t stage;
    bool work_done;  /* nothing asynchronous is outstanding, no stage follows */
    bool started;    /* the answer's head was handed to H2O */
    bool answered;   /* the whole answer was handed to H2O */
    bool gone;       /* the client left before that */
    int http_status; /* what was answered; 0: nothing yet */
    struct auth_check auth;
    bool has_rates; /* for the x-ratelimit headers */
    struct quota_state rate_requests, rate_tokens;
    void *state; /* the handler's */
    /* for the line in the access log */
    const char *log_model;
    int64_t log_prompt_tokens, log_output_tokens;
};

/* Takes a request from H2O. */
void request_start(struct connection *c, h2o_req_t *http);
/* The callback of a stage that waited. */
void request_continue(struct request *r);
/* Answers with an error (if the client is still there) and ends the work. */
void request_fail(struct request *r, const struct api_error *e);
/* The work is over: the last use of r by its caller. */
void request_end(struct request *r);
/* The HTTP/1.1 client was found to have left: ends the exchange and hastens the work's end. */
void request_drop(struct request *r);
/* The drain's deadline has come. */
void request_cancel(struct request *r, enum error_kind why);

/* The first stage of every route that needs a key. */
bool request_authenticate(struct request *r);

#endif
