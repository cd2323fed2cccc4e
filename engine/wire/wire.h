/* Frames between the gateway and an engine process, over one Unix-domain stream socket per loop.
 * Little-endian; a frame is a u32 length of what follows, a u16 type, and the body. Strict: a body
 * that is short, long or out of range is ST_CORRUPT and ends the connection. Encoders append to a
 * struct buf; decoders borrow from the frame's bytes. No I/O here; any thread.
 *
 * Hello negotiates: the gateway offers versions [min, max], the engine picks one in WELCOME or
 * closes with REFUSED. Counts in frames are cumulative per job, all its choices together and the
 * prompt once, so a lost connection loses no arithmetic: the last frame received says what was
 * generated. A frame has one encoding: what is a set (biases, stop ids) ascends. */
#ifndef ENGINE_WIRE_WIRE_H
#define ENGINE_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/reader.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/sampling.h"
#include "engine/text/tokenizer.h"

/* 3 brings MONITOR, CLAIM, SETTLED and RELEASE, 4 HANDOVER, WAKE and SLEEP; all else is as in 2. */
#define WIRE_VERSION_MIN      2
#define WIRE_VERSION_ADOPT    3
#define WIRE_VERSION_HANDOVER 4
#define WIRE_FRAME_BYTES_MAX  (16u << 20) /* a prompt of a million ids is 4 MiB */
#define WIRE_HEADER_BYTES     6
#define WIRE_STOPS_MAX        4       /* as STOP_STRINGS_MAX */
#define WIRE_STOP_BYTES_MAX   256     /* as STOP_STRING_BYTES_MAX */
#define WIRE_WEIGHT_MAX       1000000 /* a thousand ordinary shares */
#define WIRE_QUEUE_MS_MAX     86400000
#define WIRE_ENTRY_TOKENS_MAX 512                                  /* samples in a STEP entry */
#define WIRE_CLAIM_MAX        1024                                 /* requests in a frame */
#define WIRE_PROMPT_MAX       ((WIRE_FRAME_BYTES_MAX - 65536) / 4) /* the rest takes less */

/* A build may pretend to be the next one: to try what an upgrade does. */
#ifndef WIRE_VERSION_MAX
#define WIRE_VERSION_MAX 4
#endif

enum wire_type {
    WIRE_HELLO = 1,    /* gateway: versions, build */
    WIRE_WELCOME = 2,  /* engine: version, build, model revision, limits, device */
    WIRE_REFUSED = 3,  /* engine: why it won't talk */
    WIRE_SUBMIT = 4,   /* gateway: a job */
    WIRE_CANCEL = 5,   /* gateway: stop a job within a step */
    WIRE_STEP = 6,     /* engine: all tokens of one step for this connection */
    WIRE_FINAL = 7,    /* engine: the exact end of a job */
    WIRE_STATS = 8,    /* engine: gauges and counters, a few times a second */
    WIRE_CREDIT = 9,   /* gateway: bytes of STEP and FINAL frames it has consumed */
    WIRE_MONITOR = 10, /* a supervisor, after WELCOME: this connection only watches */
    WIRE_CLAIM = 11,   /* gateway: requests of an earlier one, whose ends it needs */
    WIRE_SETTLED = 12, /* engine: how a claimed request ended, one frame for each */
    WIRE_RELEASE = 13, /* gateway: the ends of these requests are durable and may be forgotten */
    /* A monitor, and then the engine to its gateways: another engine serves the socket's path now,
     * new jobs are for it. This one takes jobs until its last gateway has left, and leaves then. */
    WIRE_HANDOVER = 14,
    /* A gateway in place of HELLO, to who answers for an engine that was unloaded while idle: a
     * request waits for it. The answer is REFUSED. */
    WIRE_WAKE = 15,
    /* A monitor, to an engine that seems to have nothing to do, and the engine to its gateways. One
     * that has no job here hangs up, and comes back for its next one; an engine that all have left
     * leaves too. Whoever greets or submits before that keeps it: so no job is lost to the choice
     * of the moment. */
    WIRE_SLEEP = 16,
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
    uint64_t tenant, project; /* opaque */
    uint32_t weight;          /* of the tenant's share; 1000 is the ordinary one */
    uint32_t priority;        /* class, below ENGINE_PRIORITIES */
    uint32_t queue_max_ms;    /* 0: no bound; at most WIRE_QUEUE_MS_MAX */
    uint8_t salt[ENGINE_SALT_BYTES];
    uint32_t max_tokens; /* hard cap on output tokens of each choice (0: prompt only) */
    uint32_t n_choices;  /* 1 to ENGINE_CHOICES_MAX */
    /* choice and end_ids don't travel. bias: ids >= 0, ascending. The decoder's lists, here and
     * below, lie in its scratch. */
    struct sampling sampling;
    bool ignore_eos;
    uint32_t n_stop_ids;     /* at most STOP_IDS_MAX */
    const int32_t *stop_ids; /* >= 0, ascending */
    uint32_t n_stops;
    struct text_span stops[WIRE_STOPS_MAX]; /* borrowed */
    uint32_t n_prompt;                      /* >= 1 */
    const int32_t *prompt;                  /* >= 0 each */
};

struct wire_refused {
    uint16_t status; /* enum status */
    char text[128];
};

/* What became of a choice; see struct engine_delta. */
struct wire_step_entry {
    uint64_t job;
    uint32_t choice;        /* below ENGINE_CHOICES_MAX */
    uint8_t finish;         /* enum engine_finish: not NONE in the choice's last entry */
    bool is_prompt;         /* `tokens` are the prompt's; then without text and finish */
    uint32_t prompt_tokens; /* of the job: the whole prompt once its prefill is complete, else 0 */
    uint32_t cached_tokens;
    uint32_t output_tokens; /* of the job */
    const char *text;       /* bytes that became safe to send in this step; borrowed */
    uint32_t text_len;
    uint32_t n_tokens; /* at most WIRE_ENTRY_TOKENS_MAX */
    /* ids >= 0, log-probabilities no NaN; the decoder's lie in its scratch. */
    const struct token_sample *tokens;
};

struct wire_final {
    uint64_t job;
    uint16_t status; /* enum status: ST_OK, ST_CANCELLED, ST_INTERNAL (NaN, device), ST_NO_CHOICE,
                        ST_TOO_LONG, ST_OVERLOADED, ST_TIMEOUT ... */
    uint8_t finish;  /* enum engine_finish */
    uint32_t prompt_tokens, cached_tokens, output_tokens;
    uint32_t queue_us, prefill_us, decode_us; /* of the first choice */
    uint32_t retry_after_ms;                  /* with ST_OVERLOADED and ST_TIMEOUT, else 0 */
};

struct wire_stats {
    uint32_t running, waiting;
    uint32_t pages_used, pages_total;
    uint32_t rows_max; /* most sequences in one step since the start */
    uint64_t steps, prompt_tokens, output_tokens, preemptions;
    uint64_t prefix_query_tokens, prefix_hit_tokens, not_finite;
    int64_t last_step_age_ms; /* -1: no work waits */
};

/* A list of requests, of CLAIM and RELEASE. */
struct wire_requests {
    uint32_t n; /* 1 to WIRE_CLAIM_MAX */
    struct id ids[WIRE_CLAIM_MAX];
};

/* The exact end of a request whose gateway went away; it comes once it has ended. Not known: the
 * engine never had it, or has forgotten it; all counts are 0. */
struct wire_settled {
    struct id request;
    bool is_known;
    uint32_t prompt_tokens, cached_tokens, output_tokens; /* as in FINAL */
};

/* A frame in a receive buffer; borrowed from it. */
struct wire_frame {
    uint16_t type;
    const uint8_t *body;
    size_t len;
};

enum wire_scan { WIRE_SCAN_MORE, WIRE_SCAN_FRAME, WIRE_SCAN_CORRUPT };

/* Whether `data` begins with a whole frame; then *out and the bytes that it takes. CORRUPT as soon
 * as the length can't be one. The type is not judged. */
MUST_CHECK enum wire_scan wire_scan(const void *data, size_t len, struct wire_frame *out,
                                    size_t *frame_bytes);

/* Everything that the decoder of SUBMIT asks of values, so that a sender can ask before it sends:
 * ranges (no NaN), counts, order, and that the frame is not too long. Stop strings are lengths only
 * here: a detokenizer judges their text. */
bool wire_submit_is_valid(const struct wire_submit *v);

void wire_put_hello(struct buf *b, const struct wire_hello *v);
void wire_put_welcome(struct buf *b, const struct wire_welcome *v);
void wire_put_refused(struct buf *b, const struct wire_refused *v);
void wire_put_submit(struct buf *b, const struct wire_submit *v);
void wire_put_cancel(struct buf *b, uint64_t job);
void wire_put_final(struct buf *b, const struct wire_final *v);
void wire_put_stats(struct buf *b, const struct wire_stats *v);
void wire_put_credit(struct buf *b, uint64_t bytes);
/* MONITOR, HANDOVER, WAKE or SLEEP, which have no body. */
void wire_put_bare(struct buf *b, enum wire_type type);
void wire_put_claim(struct buf *b, const struct wire_requests *v);
void wire_put_settled(struct buf *b, const struct wire_settled *v);
void wire_put_release(struct buf *b, const struct wire_requests *v);

/* A STEP frame is written entry by entry: begin on an empty buffer, add, and end fills in length
 * and count. */
void wire_step_begin(struct buf *b, uint64_t step);
void wire_step_add(struct buf *b, const struct wire_step_entry *e);
void wire_step_end(struct buf *b);

/* The frame's type is the caller's to check first. ST_CORRUPT leaves *out undefined. */
MUST_CHECK enum status wire_get_hello(const struct wire_frame *f, struct wire_hello *out);
MUST_CHECK enum status wire_get_welcome(const struct wire_frame *f, struct wire_welcome *out);
MUST_CHECK enum status wire_get_refused(const struct wire_frame *f, struct wire_refused *out);
/* Lists are decoded into `scratch` (cleared first); ST_NO_MEMORY when that fails. */
MUST_CHECK enum status wire_get_submit(const struct wire_frame *f, struct buf *scratch,
                                       struct wire_submit *out);
MUST_CHECK enum status wire_get_cancel(const struct wire_frame *f, uint64_t *job);
MUST_CHECK enum status wire_get_final(const struct wire_frame *f, struct wire_final *out);
MUST_CHECK enum status wire_get_stats(const struct wire_frame *f, struct wire_stats *out);
MUST_CHECK enum status wire_get_credit(const struct wire_frame *f, uint64_t *bytes);
MUST_CHECK enum status wire_get_bare(const struct wire_frame *f);
MUST_CHECK enum status wire_get_claim(const struct wire_frame *f, struct wire_requests *out);
MUST_CHECK enum status wire_get_settled(const struct wire_frame *f, struct wire_settled *out);
MUST_CHECK enum status wire_get_release(const struct wire_frame *f, struct wire_requests *out);

/* Entries of a STEP frame that was checked as a whole. Texts are the frame's; an entry's samples
 * are decoded into `scratch`, which has room since wire_get_step and is borrowed until the last
 * entry was seen. */
struct wire_step {
    uint64_t step; /* number of the step since the engine's start */
    uint32_t n_entries;
    struct reader reader;
    struct buf *scratch;
};
/* ST_CORRUPT or ST_NO_MEMORY. */
MUST_CHECK enum status wire_get_step(const struct wire_frame *f, struct buf *scratch,
                                     struct wire_step *out);
/* False after the last entry. An entry's samples stay until the next call. */
bool wire_step_next(struct wire_step *s, struct wire_step_entry *out);

#endif
