/* The segments of a journal_writer: the records that go into the one that is written, the next one
 * when it is full or failed, and the end of those that are posted. Internal to the writer; its
 * thread. */
#ifndef BILLING_JOURNAL_SEGMENTS_H
#define BILLING_JOURNAL_SEGMENTS_H

#include "billing/journal_writer.h"

/* Each appends one record to j->out, whose first byte lies at offset `base` of its segment (0: a
 * new one, of which nothing is durable yet). A final record's sequence goes to e->final_seq. */
void segment_put_admission(struct journal_writer *j, size_t base, const struct live *e);
void segment_put_progress(struct journal_writer *j, size_t base, const struct journal_progress *p);
void segment_put_final(struct journal_writer *j, size_t base, struct live *e);
void segment_put_posted(struct journal_writer *j, size_t base, uint64_t seq);

/* A new segment, durable, that begins with everything that is open; the one before is retired, and
 * final records in it are rows now. On failure the writer is as it was, without what j->out held.
 */
MUST_CHECK enum status segment_begin(struct journal_writer *j, uint64_t posted_seq);
/* A final record that the disk has now becomes a row; e is gone. */
void segment_finish(struct journal_writer *j, struct live *e);
/* Old segments whose rows are all in Postgres. */
void segment_delete_posted(struct journal_writer *j, uint64_t posted_seq);

#endif
