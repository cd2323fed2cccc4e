/* What the API sees of the engine: the models, the text work before a job, and jobs.
 *
 * The engine itself runs in another process (`sluice engine`); this side holds its tokenizer and
 * chat template, a pool of text threads, and one connection per loop. It knows no tenant table and
 * no HTTP: a tenant is an opaque number and a weight. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/loop.h"
#include "base/status.h"
#include "base/worker.h"

struct engine;      /* shared by all threads; immutable but for atomics */
struct engine_link; /* one per loop; belongs to the loop's thread */
struct engine_job;  /* belongs to the loop's thread */
struct backend_ops;

struct engine_config {
    const char *model_path;
    const char *model_id;        /* as clients name it */
    const char *socket_path;     /* of the engine process */
    uint32_t context_tokens;     /* 0: the file's own */
    uint32_t default_max_tokens; /* when a request has none; 0: what the context leaves */
    unsigned text_threads;
    size_t text_queue; /* waiting text works, all tenants; more are refused */
    const char *build; /* told to the engine process; NULL: "" */
    /* NULL: the engine process at socket_path. Tests give engine/backend/fake.h's, and its script.
     */
    const struct backend_ops *backend;
    void *backend_arg;
};

struct engine_model {
    const char *id;
    int64_t created_s; /* the file's modification time */
    uint32_t context_tokens;
    uint32_t default_max_tokens;
    uint32_t n_vocab;
    const char *revision; /* hex */
};

/* Maps the model's file, builds tokenizer and template, starts the text threads. Does not need the
 * engine process. */
MUST_CHECK enum status engine_open(const struct engine_config *cfg, struct engine **out,
                                   struct reason *why);
/* After all links are closed. */
void engine_close(struct engine *e);

/* Models in a stable order; NULL past the end / when there is none of that id. Any thread. */
const struct engine_model *engine_model_at(const struct engine *e, size_t i);
const struct engine_model *engine_model_find(const struct engine *e, const char *id);

/* ---- text work ---- */

enum engine_prompt_kind {
    ENGINE_PROMPT_CHAT, /* messages through the model's chat template */
    ENGINE_PROMPT_TEXT, /* a raw string; control tokens in it are not parsed */
    ENGINE_PROMPT_IDS   /* token ids; checked against the vocabulary */
};

/* Embedded in the caller's heap-allocated job. The caller fills the first part and keeps it
 * untouched until on_done, which always comes, on `loop`, exactly once, also when the client has
 * gone. */
struct engine_prepare {
    struct loop *loop;
    void (*on_done)(struct engine_prepare *p);
    const struct engine_model *model;
    uint64_t tenant;
    enum engine_prompt_kind kind;
    /* CHAT, all borrowed and not shared meanwhile: an array of {role, content, ...} with the
     * content a string or an array of {type: "text", text}; documents for the template (an array of
     * objects) and its further variables (an object), or NULL. Of the last two flags at most one:
     * begin the answer's message, or go on in the last one. */
    json_t *messages, *documents, *extra;
    bool add_generation_prompt, continue_final_message;
    const char *text; /* TEXT */
    size_t text_len;
    json_t *id_array;    /* IDS: array of integers */
    bool control_tokens; /* TEXT and IDS may hold control tokens; else text is never parsed into
                            them and their ids are refused */
    /* results */
    enum status status; /* ST_OK; ST_INVALID (reason.param names the field); ST_TOO_LONG */
    struct reason reason;
    int32_t *ids;   /* malloc'd; the caller frees */
    uint32_t n_ids; /* on ST_TOO_LONG: as far as it was counted */
    /* private */
    struct engine *engine;
    struct work work;
    struct loop_message message;
};

/* ST_OVERLOADED: the text queue is full (or this tenant's share of it), on_done will not come. */
MUST_CHECK enum status engine_prepare(struct engine *e, struct engine_prepare *p);

/* ---- jobs ---- */

enum engine_finish { ENGINE_FINISH_NONE, ENGINE_FINISH_STOP, ENGINE_FINISH_LENGTH };

struct engine_usage {
    uint32_t prompt_tokens; /* 0 until the prompt's prefill is complete, then all of it */
    uint32_t cached_tokens;
    uint32_t output_tokens; /* generated, the end-of-generation token included (it was computed) */
};

struct engine_end {
    enum status status; /* ST_OK; ST_CANCELLED; ST_UNAVAILABLE (engine died); ST_OVERLOADED (queue);
                           ST_INTERNAL (NaN in its logits, device) */
    enum engine_finish finish; /* with ST_OK */
    struct engine_usage usage; /* what the table of design section 5 bills for this end */
    uint32_t queue_us, prefill_us, decode_us;
};

struct engine_stop_string {
    const char *text;
    size_t len;
};

struct engine_submit {
    struct id request;
    const struct engine_model *model;
    uint64_t tenant;
    uint32_t weight;       /* 1000 is the ordinary share */
    const int32_t *prompt; /* copied into the frame */
    uint32_t n_prompt;
    uint32_t max_tokens;
    float temperature, top_p;
    int32_t top_k;
    uint64_t seed;
    const struct engine_stop_string *stops;
    size_t n_stops;
    bool ignore_eos; /* go on to max_tokens past the model's own end (for load tests) */
    /* Called on the loop, from the socket's read, never from inside engine_submit. */
    void *arg;
    /* text: valid UTF-8, may be empty; never called after engine_cancel. */
    void (*on_tokens)(void *arg, const char *text, size_t len, const struct engine_usage *so_far);
    /* Exactly once per accepted job, the last call; the job is gone when it returns. */
    void (*on_end)(void *arg, const struct engine_end *end);
};

/* Connects (and reconnects with back-off) by itself. One per loop. */
MUST_CHECK enum status engine_link_open(struct engine *e, struct loop *loop,
                                        struct engine_link **out);
/* Ends every job (on_end with ST_UNAVAILABLE) and frees. */
void engine_link_close(struct engine_link *l);
/* Connected, greeted, and serving the model's revision that this side has. */
bool engine_link_is_ready(const struct engine_link *l);

/* ST_UNAVAILABLE: no engine now; on_end will not come. */
MUST_CHECK enum status engine_submit(struct engine_link *l, const struct engine_submit *s,
                                     struct engine_job **out);
/* No on_tokens after this; on_end still comes, from the engine's final frame (not from inside). */
void engine_cancel(struct engine_job *j);

/* ---- state ---- */

#define ENGINE_PAGE_TOKENS 16 /* positions of a KV page */

struct engine_stats {
    bool connected;
    uint32_t pid;
    char device[96]; /* "cpu avx2 fast 2 threads" */
    char build[64];
    uint32_t running, waiting;
    uint32_t pages_used, pages_total;
    uint64_t steps, prompt_tokens, output_tokens, preemptions;
    uint64_t prefix_query_tokens, prefix_hit_tokens, not_finite;
    uint32_t rows_max;        /* most sequences seen in one step since the engine's start */
    int64_t last_step_age_ms; /* -1: no work waits */
};
/* Any thread: a consistent copy of the last STATS frame. */
void engine_stats(struct engine *e, struct engine_stats *out);

#endif
