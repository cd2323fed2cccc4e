/* The bytes of the usage journal. Pure; any thread. All integers are little-endian.
 *
 * A segment is a header of JOURNAL_HEAD_BYTES and then records, within blocks of 32 KB:
 *
 *   head    "SLUJRNL\0", version u32, block bytes u32, generation u64, number u64, first_seq u64,
 *           prev_end u64, prev_seq u64, image_end u64, XXH3-64 of all that
 *   record  XXH3-64 of what follows u64, length u16, type u8, 0 u8, place u32, durable u32,
 *           generation u64, seq u64, payload
 *
 * A record never crosses a block: the rest of one that it doesn't fit is zeros. (Records are under
 * 1 KB, so this wastes under 3 % and needs no fragments.) `place` is the record's own offset, so
 * that a block in the wrong place is seen. `seq` counts up by one; `generation` is random per
 * opening.
 *
 * `durable` says up to which offset fdatasync had finished when the record was written. So damage
 * can be told from a torn tail: where a later record says that the damaged place was durable, the
 * disk lost what it had promised; where none does, the bytes were still on their way. What
 * lies before `image_end` was durable before the segment got its name.
 *
 * Versions: 2 is written. 1 is read too: its progress records have no count of cached tokens, which
 * is then 0. A segment of a later version is refused, not guessed at.
 *
 * `prev_end` and `prev_seq` say where the previous segment ends (the rest of it is not to be read)
 * and its last sequence. So a torn tail, or one after a failed fdatasync, is cut for ever by the
 * head of the next segment; and a segment with a successor has exactly one valid reading. */
#ifndef BILLING_JOURNAL_FORMAT_H
#define BILLING_JOURNAL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "billing/billing.h"

#define JOURNAL_VERSION           2
#define JOURNAL_BLOCK_BYTES       32768
#define JOURNAL_HEAD_BYTES        72
#define JOURNAL_RECORD_HEAD_BYTES 36
#define JOURNAL_PAYLOAD_MAX       768

enum journal_type {
    JOURNAL_ADMISSION = 1,
    JOURNAL_PROGRESS = 2,
    JOURNAL_FINAL = 3,
    JOURNAL_POSTED = 4, /* every final record up to a sequence is in Postgres */
};

struct journal_head {
    uint32_t version; /* set by reading; JOURNAL_VERSION is what gets written */
    uint64_t generation, number, first_seq;
    uint64_t prev_end, prev_seq; /* 0, 0: no segment came before */
    uint64_t image_end;
};

struct journal_progress {
    struct id id;
    int64_t at_us;
    int64_t prompt_tokens; /* 0 until the prompt's prefill is complete, then all of it */
    int64_t cached_tokens; /* of these, found in the cache at the first admission to the engine */
    int64_t output_tokens;
};
/* Within the bounds of a row; no other is read back. */
bool journal_progress_is_valid(const struct journal_progress *p);

void journal_put_head(struct buf *b, const struct journal_head *h);

/* What a record's head says beyond its payload. */
struct journal_stamp {
    uint64_t generation, seq;
    size_t durable;
};
/* Each appends one record to `b`, whose first byte lies at offset `base` of the segment. */
void journal_put_admission(struct buf *b, size_t base, const struct journal_stamp *s,
                           const struct billing_admission *a);
void journal_put_progress(struct buf *b, size_t base, const struct journal_stamp *s,
                          const struct journal_progress *p);
void journal_put_final(struct buf *b, size_t base, const struct journal_stamp *s,
                       const struct billing_final *f);
void journal_put_posted(struct buf *b, size_t base, const struct journal_stamp *s,
                        uint64_t up_to_seq);

/* ---- reading; borrows the bytes ---- */

struct journal_view {
    const uint8_t *data;
    size_t len; /* readable bytes; may grow between calls, with `data` moved */
    size_t pos; /* where the next record is looked for; after SCAN_DAMAGED: where it should be */
    uint64_t next_seq;
    struct journal_head head;
};

struct journal_record {
    enum journal_type type;
    uint64_t seq;
    union {
        struct billing_admission admission;
        struct journal_progress progress;
        struct billing_final final;
        uint64_t posted_seq;
    };
};

/* ST_CORRUPT: no head, a damaged one, or another version's. */
MUST_CHECK enum status journal_view_init(struct journal_view *v, const void *data, size_t len);

enum journal_scan {
    SCAN_RECORD,
    SCAN_END,     /* every byte was read */
    SCAN_DAMAGED, /* at v->pos: bytes that are no record, or an unfinished one */
};
enum journal_scan journal_next(struct journal_view *v, struct journal_record *out);

/* After SCAN_DAMAGED: nothing says that v->pos was durable. */
bool journal_tail_is_torn(const struct journal_view *v);

#endif
