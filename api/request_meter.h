/* What one request adds to its model's counters and histograms as its tokens come. In the caller's
 * storage; belongs to the loop's thread. Times are monotonic microseconds. */
#ifndef API_REQUEST_METER_H
#define API_REQUEST_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "api/metrics.h"
#include "engine/engine.h"

struct request_meter {
    struct model_metrics *to;
    int64_t begin_us;
    bool has_token;
    struct engine_usage counted;
    int64_t last_us[ENGINE_CHOICES_MAX]; /* a choice's last token; 0: none yet */
};

/* begin_us: when the request arrived. *m is zeroed. */
void request_meter_begin(struct request_meter *m, struct model_metrics *to, int64_t begin_us);
/* Tokens of one choice came; so_far: of all choices together, from the engine. Several tokens that
 * come at once share the time since the choice's previous one evenly; those that come with its
 * first have no time between. */
void request_meter_tokens(struct request_meter *m, unsigned choice,
                          const struct engine_usage *so_far, int64_t now_us);
/* Once. `ran`: the engine had it. Phases are those of a request that the engine ended in order: the
 * prefill's and the decoding's where they were reached. */
void request_meter_end(struct request_meter *m, const struct engine_end *end, bool ran,
                       int64_t now_us);

#endif
