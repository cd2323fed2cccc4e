/* OpenAI's response bodies, appended to a buffer: the token path allocates nothing else. Every body
 * validates against tests/schemas. Pure; any thread. */
#ifndef API_SHAPES_H
#define API_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/params.h"
#include "base/buf.h"
#include "engine/engine.h"

#define FINGERPRINT_BYTES   16
#define COMPLETION_ID_BYTES 48 /* "chatcmpl-" and an id in hex */

/* What all bodies of one request share. */
struct shape {
    enum endpoint endpoint;
    char id[COMPLETION_ID_BYTES];
    int64_t created_s;
    const char *model;
    char fingerprint[FINGERPRINT_BYTES];
    bool include_usage; /* stream_options: then every chunk has a usage member, null but in the last
                         */
};

/* "fp_" and a hash of what decides the tokens besides the request: device, build, model. */
void shape_fingerprint(const struct engine_stats *s, const char *revision,
                       char out[FINGERPRINT_BYTES]);
/* "stop", "length"; "" for none. */
const char *shape_finish_name(enum engine_finish finish);

/* The whole answer of a request without `stream`. */
void shape_answer(struct buf *b, const struct shape *s, const char *text, size_t len,
                  enum engine_finish finish, const struct engine_usage *usage);

/* Chunks of a stream, as JSON (without the event's frame). Chat begins with the role; completions
 * have no such chunk, and shape_has_first says so. */
bool shape_has_first(const struct shape *s);
void shape_first(struct buf *b, const struct shape *s);
void shape_text(struct buf *b, const struct shape *s, const char *text, size_t len);
void shape_finish(struct buf *b, const struct shape *s, enum engine_finish finish);
/* choices: [] and the usage; only where include_usage. */
void shape_usage(struct buf *b, const struct shape *s, const struct engine_usage *usage);

void shape_model(struct buf *b, const struct engine_model *m);
void shape_models(struct buf *b, const struct engine *e);

#endif
