/* What it cost: prices, the usage journal, posting to Postgres, and reports.
 *
 * The journal is the truth from admission until Postgres has the row: append-only segments of 32 KB
 * blocks with checksums, generation and sequence; admission, progress and final records; final
 * records are durable (fdatasync, group commit) before on_done. It is replayed at start: an
 * admission without a final becomes an `interrupted` row with the last progress record's tokens,
 * or with what whoever holds it learns.
 * Rows are posted in batches; posting again changes nothing (key: id, admitted_at). A row that
 * Postgres refuses becomes a dead letter there and stops nobody. No floats here.
 *
 * billing_* calls are for any loop thread; the journal's thread does all file work. */
#ifndef BILLING_BILLING_H
#define BILLING_BILLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/loop.h"
#include "base/status.h"
#include "base/worker.h"
#include "billing/money.h"
#include "store/pg.h"

struct billing;
struct billing_admission;
struct billing_final;

struct billing_config {
    const char *journal_dir; /* made when missing, mode 0700; locked: one process */
    const char *conninfo;    /* the poster's own connection */
    struct pg_pool *pool;    /* usage queries */
    int64_t post_ms;         /* how often rows go to Postgres; 200 */
    size_t segment_bytes;    /* 0: 16 MiB */
    /* Each request that the last process left open, from inside billing_open, and the final record
     * that ends it with what its last progress record says; both borrowed. What else was held for
     * it (its concurrency slots) can be given back. True: the caller ends it by billing_finish,
     * with this record or one that knows more; until then it stays open in the journal. NULL:
     * nobody asks, and nobody holds any. */
    bool (*on_interrupted)(void *arg, const struct billing_admission *a,
                           const struct billing_final *f);
    void *arg;
};

/* Replays the journal (reports a cut torn tail in the log) and starts the journal and poster
 * threads. ST_CORRUPT with the segment's name when damage is not a torn tail; ST_NO_SPACE;
 * ST_CONFLICT: locked. */
MUST_CHECK enum status billing_open(const struct billing_config *cfg, struct billing **out,
                                    struct reason *why);
/* Posts what it can within deadline_ms, flushes the journal, stops. Unposted rows stay in the
 * journal. */
void billing_close(struct billing *b, int64_t deadline_ms);
/* Replayed rows were posted once (Postgres was reached), prices are loaded, and the journal can be
 * written. */
bool billing_is_ready(const struct billing *b);

/* The price in force for a model now, from a snapshot that the poster's thread refreshes: its own,
 * else that of the model '*'. ST_NOT_FOUND: none (the request is refused: a model without a price
 * is never free silently); ST_UNAVAILABLE: Postgres was not reached yet. */
MUST_CHECK enum status billing_price(struct billing *b, const char *model, struct price *out);

#define CLIENT_REQUEST_ID_MAX 128
struct billing_admission {
    struct id id;
    int64_t admitted_at_us; /* Unix */
    int64_t tenant_id, project_id, key_id;
    char model[96];
    char endpoint[24];                                 /* "chat.completions", "completions" */
    char client_request_id[CLIENT_REQUEST_ID_MAX + 1]; /* x-client-request-id, or "" */
    bool stream;
    int64_t prompt_tokens; /* exact, known before admission */
    int64_t output_cap;
    struct price price;
};

/* How a request ended; the names are the rows' `outcome`. */
enum billing_outcome {
    OUTCOME_COMPLETED,
    OUTCOME_CANCELLED,   /* client gone, or an administrator */
    OUTCOME_FAILED,      /* after admission: engine died, NaN, … */
    OUTCOME_INTERRUPTED, /* the gateway died */
};

struct billing_final {
    struct id id;
    int64_t admitted_at_us; /* as in the admission */
    int64_t ended_at_us;
    enum billing_outcome outcome;
    char finish_reason[16];                              /* "stop", "length" or "" */
    int64_t prompt_tokens, cached_tokens, output_tokens; /* billed */
    int64_t ttft_us;                                     /* -1: no token came */
};

/* An asynchronous write. Caller's heap memory, untouched until on_done, which comes on `loop`
 * exactly once: ST_OK when written (admission) or durable (final); ST_NO_SPACE, ST_IO: an admission
 * is forgotten, a final record is kept and written as soon as that is possible (don't send it
 * again); ST_INVALID, ST_CONFLICT, ST_NOT_FOUND: a mistake of the caller's (bounds, an id twice, an
 * id that is not open). */
struct billing_write {
    struct loop *loop;
    void (*on_done)(struct billing_write *w);
    enum status status;
    /* private */
    struct billing_write *next;
    struct loop_message message;
    uint8_t kind;
    union {
        struct billing_admission admission;
        struct billing_final final;
    } record;
};

void billing_admit(struct billing *b, struct billing_write *w, const struct billing_admission *a);
void billing_finish(struct billing *b, struct billing_write *w, const struct billing_final *f);
/* What was generated so far, and the prompt once its prefill is complete (else 0, 0); every 32
 * tokens or 1 s (the caller's rhythm). Fire and forget. */
void billing_progress(struct billing *b, const struct id *id, int64_t prompt_tokens,
                      int64_t cached_tokens, int64_t output_tokens);

struct billing_stats {
    uint64_t admitted, finished, posted, replayed;
    uint64_t set_aside; /* rows that Postgres refused: dead letters now */
    uint64_t unposted;  /* final records that Postgres does not have yet */
    uint64_t commits, commit_us_sum;
    bool journal_ok, postgres_ok;
};
void billing_stats(struct billing *b, struct billing_stats *out);

/* ---- usage in OpenAI's shape, for GET /v1/organization/usage/completions ---- */

struct usage_query {
    struct loop *loop;
    void (*on_done)(struct usage_query *q); /* exactly once, on the loop */
    int64_t tenant_id;                      /* 0: all tenants (platform scope) */
    int64_t project_id;                     /* 0: the tenant's all */
    int64_t start_s, end_s;                 /* Unix, [start, end); end 0: now */
    int bucket_s;                           /* 60, 3600, 86400 */
    int limit;                              /* buckets per page */
    unsigned group_by;                      /* bits: 1 project_id, 2 api_key_id, 4 model */
    int64_t page_s;                         /* start of the page's first bucket; 0: start */
    enum status status;
    struct reason reason;
    struct buf body; /* the whole response body, JSON; the caller disposes */
    /* private */
    struct work work;
    struct loop_message message;
};
/* Buckets are aligned to multiples of bucket_s (UTC); num_model_requests counts every admitted
 * request, however it ended. ST_INVALID (q->reason names the parameter) and ST_OVERLOADED come at
 * once, and then on_done does not. By on_done: ST_UNAVAILABLE, ST_TOO_LARGE (too many groups). */
MUST_CHECK enum status billing_usage(struct billing *b, struct usage_query *q);
/* A page's `next_page`, as a client gives it back, to usage_query.page_s; false: not one of ours.
 */
bool usage_page_parse(const char *s, int64_t *page_s);

/* ---- reports, blocking, for the command line ---- */

struct usage_report {
    const char *tenant;     /* name or NULL: all */
    int64_t start_s, end_s; /* 0: no bound */
    const char *format;     /* "csv" or "jsonl" */
};
/* Writes one line per usage row to `out` (streamed from a cursor), totals to *totals. */
struct usage_totals {
    int64_t rows, prompt_tokens, cached_tokens, output_tokens, cost_nanos;
    char currency[4];      /* of the rows; "" when there are none */
    bool mixed_currencies; /* then cost_nanos means nothing */
};
MUST_CHECK enum status usage_report_write(struct pg *pg, const struct usage_report *r, int out_fd,
                                          struct usage_totals *totals, struct reason *why);
/* Sums per tenant, model, outcome and currency: format "table" (for people) or "json". */
MUST_CHECK enum status usage_summary_write(struct pg *pg, const struct usage_report *r, int out_fd,
                                           struct reason *why);

/* ---- dead letters: rows that Postgres refused; blocking, for the command line ---- */

MUST_CHECK enum status dead_letters_count(struct pg *pg, int64_t *n, struct reason *why);
/* A JSON line for each, in the order of their requests: request_id, refused_at, tried_at, reason,
 * tries and `row`, a string: the row's bytes, those above 127 as \\ooo. */
MUST_CHECK enum status dead_letters_write(struct pg *pg, int out_fd, int64_t *n,
                                          struct reason *why);
struct dead_letter_retry {
    int64_t posted, refused; /* rows now, and those that Postgres refuses still */
};
/* Tries to post each once more, in a transaction of its own: it is a row or a dead letter after it,
 * never both or none, however often it's tried and whoever tries at the same time. A failure that
 * is no row's stops it; *out then counts those before. */
MUST_CHECK enum status dead_letters_retry(struct pg *pg, struct dead_letter_retry *out,
                                          struct reason *why);

#endif
