/* OpenAI's response bodies, appended to a buffer: the token path allocates nothing else. Every body
 * validates against tests/schemas. Pure; any thread. */
#ifndef API_SHAPES_H
#define API_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/params.h"
#include "api/shape_logprobs.h"
#include "base/buf.h"
#include "engine/engine.h"

#define FINGERPRINT_BYTES   112 /* "fp_", a device's description, '-', 12 digits */
#define COMPLETION_ID_BYTES 48  /* "chatcmpl-" and an id in hex */

/* What all bodies of one request share. */
struct shape {
    enum endpoint endpoint;
    char id[COMPLETION_ID_BYTES];
    int64_t created_s;
    const char *model;
    char fingerprint[FINGERPRINT_BYTES];
    const char *service_tier; /* chat: the tier that was used; NULL: the request names none */
    bool include_usage; /* stream_options: then every chunk has a usage member, null but in the last
                         */
};

/* One choice, whole or the part of it that a chunk carries; all borrowed. */
struct shape_choice {
    uint32_t index;
    const char *echo; /* goes before the text; of completions */
    size_t echo_len;
    const char *text;
    size_t len;
    const struct shape_logprobs *prompt_logprobs; /* go before the others; NULL: none */
    const struct shape_logprobs *logprobs;        /* NULL: not asked for */
    enum engine_finish finish;                    /* chunks: NONE where it goes on */
};

/* What decides the tokens besides the request: "fp_cpu-avx2-fast-0123456789ab" names the kind of
 * device, its instruction set, mode and KV type; the twelve digits are of a hash over that, the
 * build and the model's revision. The number of threads changes no token, and is no part of it. */
void shape_fingerprint(const struct engine_stats *s, const char *revision,
                       char out[FINGERPRINT_BYTES]);
/* "stop", "length"; "" for none. */
const char *shape_finish_name(enum engine_finish finish);

/* The whole answer of a request without `stream`: begin, each choice in order, end. */
void shape_answer_begin(struct buf *b, const struct shape *s);
void shape_answer_choice(struct buf *b, const struct shape *s, const struct shape_choice *c);
void shape_answer_end(struct buf *b, const struct shape *s, const struct engine_usage *usage);

/* Chunks of a stream, as JSON (without the event's frame), each of one choice. Chat's first is the
 * role; completions have no such chunk. */
void shape_first(struct buf *b, const struct shape *s, uint32_t index);
void shape_text(struct buf *b, const struct shape *s, const struct shape_choice *c);
void shape_finish(struct buf *b, const struct shape *s, uint32_t index, enum engine_finish finish);
/* choices: [] and the usage; only where include_usage. */
void shape_usage(struct buf *b, const struct shape *s, const struct engine_usage *usage);

/* An entry of /v1/models under one of the model's names; the list has one for each. Without a
 * revision yet `created` is 0. */
void shape_model(struct buf *b, const struct engine_model *m, const char *name);
void shape_models(struct buf *b, const struct engine *e);

#endif
