/* Reads the whole journal at start: which requests are still open, which final records Postgres may
 * not have, and where writing goes on. Reads one segment at a time; holds only what is open. */
#ifndef BILLING_REPLAY_H
#define BILLING_REPLAY_H

#include "billing/journal_file.h"
#include "billing/live_table.h"

struct replay_segment {
    uint64_t number;
    uint64_t last_final_seq; /* 0: no final record in it */
};

struct replay {
    struct live_table live; /* no final record was found */
    struct replay_segment *segments;
    size_t n_segments;
    uint64_t posted_seq;     /* final records up to this one are in Postgres */
    uint64_t last_final_seq; /* of all segments */
    uint64_t n_unposted;     /* final records above posted_seq */
    uint64_t next_number, next_seq;
    uint64_t prev_end, prev_seq; /* for the next segment's head */
};

/* A torn tail of the last segment is left out (prev_end) and logged with its place. ST_CORRUPT:
 * damage anywhere else, with the segment's name and the offset. */
MUST_CHECK enum status replay_run(const struct journal_dir *d, struct replay *out,
                                  struct reason *why);
void replay_dispose(struct replay *r);

#endif
