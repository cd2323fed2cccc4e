/* The part of the journal that its thread owns: the open requests, the segments, and what one turn
 * does with everything that was submitted since the last. No threads and no locks here, but the
 * counters, which anyone may read. */
#ifndef BILLING_JOURNAL_WRITER_H
#define BILLING_JOURNAL_WRITER_H

#include <stdatomic.h>

#include "billing/journal.h"
#include "billing/replay.h"
#include "billing/write_list.h"

struct journal_writer {
    const struct journal_dir *dir;
    size_t segment_bytes;
    struct row_source *rows;
    struct live_table live;
    struct replay_segment *old; /* complete segments, oldest first */
    size_t n_old, cap_old;
    int fd; /* the segment that is written, -1: none */
    uint64_t number, generation, next_seq;
    uint64_t last_final_seq; /* in this segment */
    size_t end;              /* its bytes */
    size_t durable;          /* of these, known to be on the disk; a record ends here */
    uint64_t durable_seq;
    size_t full; /* a new segment is due at this size */
    uint64_t posted_written;
    struct buf out;

    atomic_uint_least64_t admitted, finished, commits, commit_us_sum, unposted;
    atomic_bool ok; /* the last write worked */
};

void journal_writer_init(struct journal_writer *j, const struct journal_dir *dir,
                         struct row_source *rows, size_t segment_bytes);
void journal_writer_dispose(struct journal_writer *j);
/* Goes on where replay ended (r's requests and segments become j's): ends what was open as
 * interrupted, but for what cfg->on_interrupted holds, and writes the first segment of a new
 * generation. */
MUST_CHECK enum status journal_writer_start(struct journal_writer *j, struct replay *r,
                                            const struct journal_config *cfg);

/* What one turn takes. */
struct journal_input {
    struct write_list writes;
    struct journal_progress *progress;
    size_t n_progress;
    uint64_t posted_seq; /* final records up to this one are in Postgres */
};
/* Writes it all and answers every write. With nothing new it is the retry of a journal that failed.
 */
void journal_writer_turn(struct journal_writer *j, const struct journal_input *in);

#endif
