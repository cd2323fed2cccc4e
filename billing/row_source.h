/* Rows on their way from the journal to the poster, in the order of their final records. What comes
 * faster than Postgres takes it stays on disk: past ROW_SOURCE_MAX rows nothing more is kept in
 * memory, and the poster reads the journal again until it has caught up. So the memory is bounded
 * however long Postgres is away, and replay at start is the same path: everything unposted is on
 * disk.
 *
 * row_source_push belongs to the journal's thread, row_source_take to the poster's. */
#ifndef BILLING_ROW_SOURCE_H
#define BILLING_ROW_SOURCE_H

#include <pthread.h>

#include "billing/journal_file.h"
#include "billing/live_table.h"
#include "billing/usage_row.h"

/* About 5 MB: several seconds of the busiest box. */
#define ROW_SOURCE_MAX 8192

struct row_source {
    const struct journal_dir *dir;
    size_t max;
    pthread_mutex_t lock;
    /* Under the lock: */
    struct usage_row *ring;
    size_t first, n;
    bool on_disk;      /* rows up to last_seq that the ring doesn't hold */
    uint64_t last_seq; /* newest durable final record */
    /* The poster's: */
    uint64_t taken_seq; /* handed out up to here */
    bool is_open;       /* the segment that is being read */
    uint64_t number;
    struct buf data;
    struct journal_view view;
    struct live_table admissions;
};

/* `dir` outlives it; rows after posted_seq and up to last_seq are on disk. */
MUST_CHECK enum status row_source_init(struct row_source *s, const struct journal_dir *dir,
                                       size_t max, uint64_t posted_seq, uint64_t last_seq);
void row_source_dispose(struct row_source *s);
/* `row` is durable, and its seq above all before. */
void row_source_push(struct row_source *s, const struct usage_row *row);
/* The next rows, at most `max`; *n 0: none. ST_CORRUPT, ST_IO: the journal can't be read back. */
MUST_CHECK enum status row_source_take(struct row_source *s, struct usage_row *rows, size_t max,
                                       size_t *n, struct reason *why);

#endif
