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
#include "engine/generation_defaults.h"
#include "engine/sampling.h"

struct engine;      /* shared by all threads */
struct engine_link; /* one per loop; belongs to the loop's thread */
struct engine_job;  /* belongs to the loop's thread */
struct backend_ops;

/* A model to serve, each by an engine process of its own. */
struct engine_model_config {
    const char *path;
    const char *id;             /* as clients name it */
    const char *const *aliases; /* (n_aliases): further names of it */
    size_t n_aliases;
    const char *socket_path;     /* of the engine process; a reload changes nothing of it */
    uint32_t context_tokens;     /* 0: the file's own */
    uint32_t default_max_tokens; /* when a request has none; 0: what the context leaves */
    bool file_defaults;          /* what a request leaves open is as the file says, where it does */
    bool required;               /* see engine_link_is_ready */
    /* As the engine process has them: what may wait in it, each choice counted, in all and of one
     * tenant. 0: not known here, or no bound. */
    uint32_t queue_max, tenant_queue_max;
};

/* Who asked for a model's settings. They need not outlive the call of `take`. */
struct engine_reload {
    enum status (*take)(struct engine_reload *to, const struct engine_model_config *m,
                        struct reason *why);
};

/* Ids and aliases are borrowed for the engine's life. */
struct engine_config {
    const struct engine_model_config *models; /* (n_models); no name twice */
    size_t n_models;                          /* at least 1 */
    unsigned text_threads;
    size_t text_queue;  /* waiting text works, all tenants; more are refused */
    const char *build;  /* told to the engine process; NULL: "" */
    int64_t silence_ms; /* an engine that says nothing for so long counts as dead; 0: never */
    /* Longest wait of a job for an engine that was unloaded while idle and is loaded for it. 0:
     * such an engine counts as away. */
    int64_t load_wait_ms;
    /* NULL: the engine processes at the sockets. Tests give engine/backend/fake.h's, and its
     * script.
     */
    const struct backend_ops *backend;
    void *backend_arg;
    /* How the model of that id is to be served from now on: gives settings to to->take, once, and
     * returns what that returned; or refuses with a reason. Names and `required` stay as they were.
     * On a thread of the engine's own. NULL: models never change. */
    enum status (*reload)(void *reload_arg, const char *id, struct engine_reload *to,
                          struct reason *why);
    void *reload_arg;
};

/* What never changes of a model, while its revisions come and go: any thread, as long as the
 * engine. */
struct engine_model {
    const char *id;
    const char *const *aliases; /* (n_aliases) */
    size_t n_aliases;
    bool required;
};

/* A model's file, tokenizer, template and settings at one time. Requests keep the one that they
 * began with: another may become current at any moment, when an engine hands over to its successor
 * or comes back with another model. Immutable; counted. */
struct engine_revision {
    const struct engine_model *model;
    int64_t created_s; /* the file's modification time */
    uint32_t context_tokens;
    uint32_t default_max_tokens;
    uint32_t n_vocab;
    uint32_t choices_max; /* of a job: its choices wait together, and more never fit the queue */
    const char *hex;      /* struct model.revision */
    struct engine_defaults defaults; /* none, where the file's are not to be used */
};

/* Maps the models' files, builds tokenizers and templates, starts the text threads. Does not need
 * the engine processes. Of several models one that can't be opened is tried again, later each time,
 * until it can; refused with the reason where none can be, one that is required can't, or models
 * never change. */
MUST_CHECK enum status engine_open(const struct engine_config *cfg, struct engine **out,
                                   struct reason *why);
/* After all links are closed; their loops turn no more. */
void engine_close(struct engine *e);

/* Models in the configuration's order; NULL past the end / when none has that id or alias. Any
 * thread. */
const struct engine_model *engine_model_at(const struct engine *e, size_t i);
const struct engine_model *engine_model_find(const struct engine *e, const char *name);

/* The current revision; the caller puts it when nothing of it is used any more. NULL: the model
 * could not be opened yet. Any thread. */
const struct engine_revision *engine_revision_get(const struct engine_model *m);
/* NULL is fine. Any thread; before engine_close. */
void engine_revision_put(const struct engine_revision *r);

/* The bytes of a token as it stands in a text (a control token: its name); at most `cap` are
 * written, all are counted. Any thread. */
size_t engine_token_bytes(const struct engine_revision *r, int32_t id, char *out, size_t cap);

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
    const struct engine_revision *revision; /* the caller holds it */
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
    enum status
        status; /* ST_OK; ST_CANCELLED; ST_UNAVAILABLE (engine died); ST_OVERLOADED (queue
                   full); ST_TIMEOUT (waited too long in it); ST_ASLEEP (its engine was not
                   loaded in time); ST_INTERNAL (NaN in its
                   logits, device); ST_NO_CHOICE (bias, min_tokens or a mask left no token) */
    enum engine_finish finish; /* with ST_OK: LENGTH where any choice ended so */
    struct engine_usage usage; /* what the table of design section 5 bills for this end */
    uint32_t queue_us, prefill_us, decode_us; /* of the first choice */
    uint32_t retry_after_ms; /* with ST_OVERLOADED and ST_TIMEOUT: what the queue would take now */
};

struct engine_stop_string {
    const char *text;
    size_t len;
};

#define ENGINE_CHOICES_MAX 128 /* n; as OpenAI */
#define ENGINE_PRIORITIES  3   /* classes: 0 first */
#define ENGINE_SALT_BYTES  32

/* What became of a choice in a step. */
struct engine_delta {
    uint32_t choice;
    int64_t read_us;  /* monotonic; the same for all that were read from the engine together */
    const char *text; /* valid UTF-8, may be empty */
    size_t len;
    enum engine_finish finish; /* not NONE: the choice has ended, nothing of it follows */
    /* With want_logprobs: the tokens that `text` of this choice ends with, this delta's included: a
     * token comes with the text that holds its last byte, and never when a stop cut it off or when
     * it gives no text (control tokens, the end). A log-probability may be -infinity. With
     * want_prompt_logprobs the prompt's tokens from the second come first, once, as the deltas of
     * choice 0 that say is_prompt, without text. */
    const struct token_sample *tokens;
    uint32_t n_tokens;
    bool is_prompt;
};

struct engine_submit {
    struct id request;
    const struct engine_revision *revision; /* the caller holds it until on_end */
    uint64_t tenant, project;
    uint32_t weight;                       /* 1000 is the ordinary share */
    uint32_t priority;                     /* class, below ENGINE_PRIORITIES */
    int64_t queue_max_ms;                  /* waiting longer ends it with ST_TIMEOUT; 0: no bound */
    uint8_t cache_salt[ENGINE_SALT_BYTES]; /* from the tenant that was authenticated, never from
                                              the body: requests share KV pages only within one */
    const int32_t *prompt;                 /* copied into the frame */
    uint32_t n_prompt;
    uint32_t max_tokens; /* of each choice; 0: the prompt is computed (for its log-probabilities) */
    uint32_t n_choices;  /* 1 to ENGINE_CHOICES_MAX; 0 counts as 1 */
    /* choice and end_ids are not looked at. Lists are copied. */
    struct sampling sampling;
    const struct engine_stop_string *stops; /* not looked for before min_tokens */
    size_t n_stops;
    const int32_t *stop_ids; /* beside the model's own; the token itself gives no text */
    uint32_t n_stop_ids;     /* <= STOP_IDS_MAX */
    bool ignore_eos;         /* go on past the model's own end (stop_ids still end it) */
    /* Called on the loop, from the socket's read, never from inside engine_submit. */
    void *arg;
    /* Never called after engine_cancel. so_far: of all choices together. */
    void (*on_delta)(void *arg, const struct engine_delta *d, const struct engine_usage *so_far);
    /* Exactly once per accepted job, the last call; the job is gone when it returns. */
    void (*on_end)(void *arg, const struct engine_end *end);
};

/* Connects (and reconnects with back-off) by itself. One per loop. */
MUST_CHECK enum status engine_link_open(struct engine *e, struct loop *loop,
                                        struct engine_link **out);
/* Ends every job (on_end with ST_UNAVAILABLE) and frees. */
void engine_link_close(struct engine_link *l);
/* Connected to the model's engine, greeted, and serving the model's current revision; or that was
 * unloaded while idle: the next job loads it, and waits. */
bool engine_link_serves(const struct engine_link *l, const struct engine_model *m);
/* The same of one revision, which the caller holds. */
bool engine_link_takes(const struct engine_link *l, const struct engine_revision *r);
/* Serves at least one model, and every required one. */
bool engine_link_is_ready(const struct engine_link *l);

/* ST_UNAVAILABLE: no engine of that model now, nor one that a job would load; ST_OVERLOADED: too
 * many wait for one that loads. on_end will not come. */
MUST_CHECK enum status engine_submit(struct engine_link *l, const struct engine_submit *s,
                                     struct engine_job **out);
/* No on_delta after this; on_end still comes, from the engine's final frame (not from inside). */
void engine_cancel(struct engine_job *j);

/* ---- requests of an earlier gateway ---- */

struct engine_claimed {
    struct id id;
    bool is_settled; /* set before on_settled */
};

/* Embedded in the caller's memory; its own and the requests' stay until the last on_settled or
 * engine_unclaim. The caller zeroes it and fills the first part. */
struct engine_claim {
    const struct engine_model *model;
    struct engine_claimed *requests;
    size_t n;
    void *arg;
    /* How request i ended: what it is to be billed for; NULL: the engine never had it, or has
     * forgotten. Once for each. */
    void (*on_settled)(void *arg, size_t i, const struct engine_usage *usage);
    /* private */
    size_t n_left, next;
};

/* Asks how requests ended whose gateway died, once the model and an engine are there; those that
 * the engine still ends are answered when they have ended. An engine of an older version knows
 * none. Answers may come from inside. One claim at a time on a model's link. */
void engine_claim(struct engine_link *l, struct engine_claim *c);
/* No on_settled comes any more; also right after the last. Before engine_link_close. */
void engine_unclaim(struct engine_link *l, struct engine_claim *c);
/* The end of a request that was claimed is durable: the engine may forget it. */
void engine_release(struct engine_link *l, const struct engine_model *m, const struct id *request);

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
    bool stalled;             /* work has waited for silence_ms and no step was made */
    bool asleep;              /* unloaded while idle: the next job loads it */
    char absence[128];        /* without a connection: why, as far as somebody said; else "" */
};
/* Any thread: a consistent copy of the last STATS frame of the current revision's engine, with what
 * still runs and waits in the one before it. */
void engine_stats_of(struct engine *e, const struct engine_model *m, struct engine_stats *out);
/* All models together: sums, of rows_max and last_step_age_ms the greatest; connected: all are;
 * pid, device and build are the first model's. */
void engine_stats(struct engine *e, struct engine_stats *out);

#endif
