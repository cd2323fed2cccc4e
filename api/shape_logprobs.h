/* Log-probabilities in OpenAI's two shapes, collected token by token as JSON.
 *
 * Chat has one array of {token, logprob, bytes, top_logprobs}: a token that is no valid UTF-8 by
 * itself is written with U+FFFD, and `bytes` has it exactly. Completions have four parallel arrays
 * without bytes: such a token is written there as OpenAI does, "bytes:\xe2\x80", so that nothing is
 * lost and the keys of top_logprobs stay apart. Pure; one thread at a time; allocates nothing once
 * its buffers have grown. */
#ifndef API_SHAPE_LOGPROBS_H
#define API_SHAPE_LOGPROBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/params.h"
#include "base/buf.h"
#include "engine/engine.h"

/* Where a token's bytes come from: engine_token_bytes and a revision. */
struct token_source {
    const struct engine_revision *revision;
    size_t (*bytes)(const struct engine_revision *r, int32_t id, char *out, size_t cap);
};

enum logprob_list { /* of completions */
                    LOGPROB_TOKENS,
                    LOGPROB_VALUES,
                    LOGPROB_TOPS,
                    LOGPROB_OFFSETS,
                    LOGPROB_LISTS,
};

struct shape_logprobs {
    enum endpoint endpoint;
    struct buf lists[LOGPROB_LISTS]; /* elements with commas; chat has all in the first */
    struct buf key;                  /* of completions: the bytes of a token that is looked up */
};

void shape_logprobs_init(struct shape_logprobs *l, enum endpoint endpoint);
void shape_logprobs_dispose(struct shape_logprobs *l);
/* Empties it, keeps the memory. */
void shape_logprobs_clear(struct shape_logprobs *l);
size_t shape_logprobs_bytes(const struct shape_logprobs *l);
bool shape_logprobs_failed(const struct shape_logprobs *l); /* out of memory */

/* `offset`: characters of the choice's text before the token (completions). `scratch` is any buffer
 * of the caller's; its content goes. */
void shape_logprobs_add(struct shape_logprobs *l, const struct token_source *from,
                        const struct token_sample *t, int64_t offset, struct buf *scratch);
/* A prompt's first token, which nothing precedes: its values are null. Completions only. */
void shape_logprobs_add_first(struct shape_logprobs *l, const struct token_source *from, int32_t id,
                              int64_t offset, struct buf *scratch);

/* The value of a choice's `logprobs`: first those of the prompt (NULL: none), then its own. */
void shape_logprobs_put(struct buf *b, const struct shape_logprobs *prompt,
                        const struct shape_logprobs *own);

/* The token's bytes into *out (cleared first). */
void token_source_read(const struct token_source *from, int32_t id, struct buf *out);

#endif
