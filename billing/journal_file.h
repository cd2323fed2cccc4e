/* The journal's folder: its lock, its segments (NUMBER.seg, 16 hex digits) and the few file
 * operations on them. A segment appears under its name only when its whole first content is
 * durable, so a file of that name always has a head. Belongs to the journal's thread, but for
 * journal_segment_load, _head and _exists (any thread). */
#ifndef BILLING_JOURNAL_FILE_H
#define BILLING_JOURNAL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/status.h"
#include "billing/journal_format.h"

/* What may fail, behind pointers so that tests make it fail. */
struct journal_io {
    ssize_t (*pwrite)(void *arg, int fd, const void *data, size_t len, off_t at);
    int (*fdatasync)(void *arg, int fd);
    void *arg;
};
extern const struct journal_io journal_io_real;

/* Largest segment that is read back: offsets are 32 bits, and replay holds one segment in memory.
 */
#define JOURNAL_SEGMENT_MAX_BYTES ((size_t)1 << 30)

struct journal_dir {
    const struct journal_io *io;
    int fd, lock_fd;
};

/* Makes the folder when missing (mode 0700), locks it and removes unfinished segments. ST_CONFLICT:
 * another process has it. */
MUST_CHECK enum status journal_dir_open(struct journal_dir *d, const char *path,
                                        const struct journal_io *io, struct reason *why);
void journal_dir_close(struct journal_dir *d);

/* Numbers of the segments, ascending; the caller frees *out. */
MUST_CHECK enum status journal_dir_list(const struct journal_dir *d, uint64_t **out, size_t *n,
                                        struct reason *why);

/* A new segment with its first content, durable, under its name; *fd is open for writing. */
MUST_CHECK enum status journal_segment_create(const struct journal_dir *d, uint64_t number,
                                              const void *data, size_t len, int *fd);
/* Writes all of it, or nothing: a failed write is cut off again, as far as the disk lets us. */
MUST_CHECK enum status journal_segment_write(const struct journal_dir *d, int fd, const void *data,
                                             size_t len, size_t at);
MUST_CHECK enum status journal_segment_sync(const struct journal_dir *d, int fd);
void journal_segment_delete(const struct journal_dir *d, uint64_t number);

bool journal_segment_exists(int dir_fd, uint64_t number);
/* Appends what the segment holds from offset `from` on, at most max_bytes (0: all). */
MUST_CHECK enum status journal_segment_load(int dir_fd, uint64_t number, size_t from,
                                            size_t max_bytes, struct buf *out, struct reason *why);
/* Its head; ST_CORRUPT, with its name, when there is no valid one. */
MUST_CHECK enum status journal_segment_head(int dir_fd, uint64_t number, struct journal_head *out,
                                            struct reason *why);

#endif
