/* One completion request on its way through the stages: parse, prepare, admit, journal, run,
 * settle. Split over the files inference.c (the handler), inference_read.c (what the request says),
 * inference_admit.c (whether it may run), inference_run.c (the engine's job and the end) and
 * inference_answer.c (what the client sees). Belongs to its loop's thread. */
#ifndef API_INFERENCE_H
#define API_INFERENCE_H

#include "api/answers.h"
#include "api/choices.h"
#include "api/params.h"
#include "api/request.h"
#include "api/request_meter.h"
#include "api/shapes.h"
#include "api/sse.h"
#include "billing/billing.h"
#include "engine/engine.h"
#include "quota/quota.h"

/* What a client waits before it tries again when a part is away: Redis and the engine's link
 * reconnect within about as long. */
#define API_RETRY_MS 1000

/* A large body's way over the parser's thread, which has all of this until the message. */
struct body_parse {
    struct work work;
    struct loop_message message;
    char *body; /* copied: H2O may free its own at any moment */
    size_t len;
    bool ok;
    struct api_error error;
};

struct inference {
    struct request *request;
    enum error_kind cancelled; /* why it must end; ERROR_NONE: it needn't */
    struct body_parse parse;
    struct params params;
    const struct engine_revision *revision; /* held from the parse stage to the end */
    char client_request_id[CLIENT_REQUEST_ID_MAX + 1];
    struct engine_prepare prepare;
    struct price price;
    struct quota_ask ask;
    int64_t output_cap;     /* of each choice */
    int64_t admitted_at_us; /* wall clock */
    int64_t admitted_ns;    /* monotonic: the wall clock may be set back meanwhile */
    struct billing_write write;
    struct engine_job *job; /* while it runs */
    bool ran;               /* it reached the engine */
    struct loop_timer deadline;
    int64_t first_token_ns;   /* monotonic, as admitted_ns; 0: none yet */
    uint32_t progress_tokens; /* at the last progress record */
    int64_t progress_ms;
    struct request_meter meter;
    struct engine_end end;
    struct shape shape;
    struct sse stream; /* streamed */
    struct choices choices;
    size_t body_bytes;    /* of an answer that was handed over whole */
    struct answer answer; /* what all of it holds */
    bool is_echo_sent;    /* streamed */
};

/* Stages. */
bool inference_parse(struct request *r);
bool inference_prepare(struct request *r);
bool inference_admit(struct request *r);
bool inference_journal(struct request *r);
bool inference_run(struct request *r);

/* Answer with an error and end, before anything was reserved. Return false, as a stage that ended.
 */
bool inference_refuse(struct request *r, struct api_error *e);
bool inference_refuse_kind(struct request *r, enum error_kind kind);

/* The end of what was journaled: settles, writes the final record, answers when that is durable.
 * `end` says how it went; exactly once. */
void inference_close(struct inference *i, const struct engine_end *end);

/* Before anything is reserved. ST_TOO_LARGE: what it is sure to hold is more than an answer may;
 * ST_NO_MEMORY. */
MUST_CHECK enum status inference_answer_init(struct inference *i);
/* The answer. All do nothing once the client is gone. */
void inference_answer_start(struct inference *i);
void inference_answer_delta(struct inference *i, const struct engine_delta *d);
void inference_answer_end(struct inference *i, const struct api_error *e); /* NULL: it went well */

/* Ends the loop's largest answer where all together hold too much: its memory goes at once, its
 * client gets an error when the engine has said what was generated. One that was ended already, or
 * handed over whole, loses its connection. */
void inference_make_room(struct api_loop *l);

#endif
