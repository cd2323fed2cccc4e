/* What one request adds to its model's counters and histograms as its tokens come. In the caller's
 * storage; belongs to the loop's thread. Times are monotonic microseconds. */
#ifndef API_REQUEST_METER_H
#define API_REQUEST_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "api/metrics.h"
#include "engine/engine.h"

/* Tokens of one choice that were read together: their steps are not told apart any more, so the
 * time since the read before is shared among them. */
struct token_read {
    int64_t before_us, at_us; /* the read before, and this one; 0: none yet */
    uint32_t n_gaps;          /* not observed yet */
};

struct request_meter {
    struct model_metrics *to;
    int64_t begin_us;
    bool has_token;
    struct engine_usage counted;
    struct token_read reads[ENGINE_CHOICES_MAX]; /* the last one of each choice */
};

/* begin_us: when the request arrived. *m is zeroed. */
void request_meter_begin(struct request_meter *m, struct model_metrics *to, int64_t begin_us);
/* Tokens of one choice came; so_far: of all choices together, from the engine. read_us: when they
 * were read, the same for all that were read together. A choice of n tokens gets n - 1 gaps, which
 * are the time from its first read to its last together: each read's tokens share the time since
 * the read before evenly, and those that came with the first token share that of the next read.
 * They are observed at the next read or the end. */
void request_meter_tokens(struct request_meter *m, unsigned choice,
                          const struct engine_usage *so_far, int64_t read_us);
/* Once. `ran`: the engine had it. Phases are those of a request that the engine ended in order: the
 * prefill's and the decoding's where they were reached. */
void request_meter_end(struct request_meter *m, const struct engine_end *end, bool ran,
                       int64_t now_us);

#endif
