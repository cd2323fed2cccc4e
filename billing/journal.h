/* The journal's thread: one owner of the segments and of the open requests. It takes everything
 * that was submitted since its last turn, writes it with one write(2) and, when a final record is
 * among it, makes all of it durable with one fdatasync (group commit: while that runs, the next
 * group gathers).
 *
 * A new segment begins with all open requests, and what comes before it is only needed for rows
 * that Postgres doesn't have: so old segments are deleted from the oldest on, and a request that
 * runs for days pins none. When a write or a sync fails, the segment is never written or trusted
 * again past what was known to be durable: a new one takes its place, with everything open in it.
 * Until that works (space returned), writes end with ST_NO_SPACE or ST_IO, and it is tried again
 * twice a second. */
#ifndef BILLING_JOURNAL_H
#define BILLING_JOURNAL_H

#include "billing/billing.h"
#include "billing/journal_file.h"
#include "billing/row_source.h"

struct journal;

struct journal_config {
    const char *dir;
    size_t segment_bytes;
    size_t rows_in_memory;       /* 0: ROW_SOURCE_MAX */
    const struct journal_io *io; /* NULL: the real one */
    /* As in struct billing_config. */
    bool (*on_interrupted)(void *arg, const struct billing_admission *a,
                           const struct billing_final *f);
    void *arg;
};

/* Replays, starts a new generation, starts the thread. */
MUST_CHECK enum status journal_open(const struct journal_config *cfg, struct journal **out,
                                    struct reason *why);
/* Writes what was submitted, stops the thread, frees. Every on_done was posted. */
void journal_close(struct journal *j);

/* Any thread; w->kind and w->record are set. A refusal also comes by on_done: ST_INVALID (out of
 * bounds), ST_CONFLICT (the id is open already, or its final record is there), ST_NOT_FOUND (a
 * final record for no open request). After ST_NO_SPACE or ST_IO an admission is forgotten, but a
 * final record is kept and written when that is possible: it is not to be submitted again. */
enum { JOURNAL_WRITE_ADMISSION, JOURNAL_WRITE_FINAL };
void journal_submit(struct journal *j, struct billing_write *w);
/* Any thread; dropped when too many wait (the next one says more) or out of bounds. */
void journal_progress(struct journal *j, const struct journal_progress *p);

/* The poster's: its rows, and what it got into Postgres. */
struct row_source *journal_rows(struct journal *j);
void journal_posted(struct journal *j, uint64_t up_to_seq, uint64_t n_rows);

struct journal_stats {
    uint64_t admitted, finished, commits, commit_us_sum;
    uint64_t replayed; /* rows that the last process left to this one */
    uint64_t unposted;
    uint64_t replayed_seq; /* the last of those */
    bool is_ok;
};
void journal_stats(struct journal *j, struct journal_stats *out);

#endif
