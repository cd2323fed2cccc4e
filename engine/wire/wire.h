/* Frames between the gateway and an engine process, over one Unix-domain stream socket per loop.
 * Little-endian; a frame is a u32 length of what follows, a u16 type, and the body. Strict: a body
 * that is short, long or out of range is ST_CORRUPT and ends the connection. Encoders append to a
 * struct buf; decoders borrow from the frame's bytes. No I/O here; any thread.
 *
 * Hello negotiates: the gateway offers versions [min, max], the engine picks one in WELCOME or
 * closes with REFUSED. Counts in frames are cumulative per job, so a lost connection loses no
 * arithmetic: the last frame received says what was generated. */
#ifndef ENGINE_WIRE_WIRE_H
#define ENGINE_WIRE_WIRE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/status.h"
#include "engine/core/sampler.h"
#include "engine/engine.h"
#include "engine/text/tokenizer.h"

#define WIRE_VERSION_MIN     1
#define WIRE_VERSION_MAX     1
#define WIRE_FRAME_BYTES_MAX (16u << 20) /* a prompt of a million ids is 4 MiB */
#define WIRE_HEADER_BYTES    6

enum wire_type {
    WIRE_HELLO = 1,   /* gateway: versions, build */
    WIRE_WELCOME = 2, /* engine: version, build, model revision, limits, device */
    WIRE_REFUSED = 3, /* engine: why it won't talk */
    WIRE_SUBMIT = 4,  /* gateway: a job */
    WIRE_CANCEL = 5,  /* gateway: stop a job within a step */
    WIRE_STEP = 6,    /* engine: all tokens of one step for this connection */
    WIRE_FINAL = 7,   /* engine: the exact end of a job */
    WIRE_STATS = 8,   /* engine: gauges and counters, a few times a second */
    WIRE_CREDIT = 9,  /* gateway: bytes of STEP and FINAL frames it has consumed */
};

struct wire_hello {
    uint16_t version_min, version_max;
    char build[64];
};

struct wire_welcome {
    uint16_t version;
    char build[64];
    char revision[65]; /* struct model.revision */
    char device[96];   /* device describe() */
    uint32_t max_sequences, max_rows, max_context, n_pages, n_vocab;
    uint64_t credit_bytes; /* bytes the engine sends before it waits for CREDIT */
    uint32_t pid;
};

struct wire_submit {
    uint64_t job; /* unique on this connection */
    struct id request;
    uint64_t tenant;     /* opaque */
    uint32_t weight;     /* of the tenant's share; 1000 is the ordinary one */
    uint32_t max_tokens; /* hard cap on output tokens, >= 1 (0: prompt only) */
    struct sampling sampling;
    bool ignore_eos;
    uint32_t n_stops;
    struct text_span stops[4]; /* borrowed */
    uint32_t n_prompt;
    const int32_t *prompt; /* decoder: points into the frame when aligned, else into scratch */
};

struct wire_step_entry {
    uint64_t job;
    uint32_t prompt_tokens; /* cumulative: the whole prompt once its prefill is complete, else 0 */
    uint32_t cached_tokens;
    uint32_t output_tokens; /* cumulative */
    const char *text;       /* bytes that became safe to send in this step; borrowed */
    uint32_t text_len;
};

struct wire_final {
    uint64_t job;
    uint16_t status; /* enum status: ST_OK, ST_CANCELLED, ST_INTERNAL (NaN, device), ST_TOO_LONG,
                        ST_OVERLOADED */
    uint8_t finish;  /* enum engine_finish */
    uint32_t prompt_tokens, cached_tokens, output_tokens;
    uint32_t queue_us, prefill_us, decode_us;
};

#endif
