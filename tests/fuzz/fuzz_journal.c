/* The journal's reader on any bytes as one segment: it says how far they are good, and every record
 * that it gives is within the bounds that make it postable. An input that begins with 'R' has its
 * checksums put right first, so that the bytes behind them are reached; 'O' the same, as a segment
 * of the version before. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "billing/journal_format.h"
#include "billing/usage_row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_record(const struct journal_record *rec)
{
    struct usage_row row = {.seq = rec->seq};
    struct buf b;

    if (rec->type == JOURNAL_ADMISSION)
        row.admission = rec->admission;
    if (rec->type == JOURNAL_FINAL) {
        row.final = rec->final;
        memcpy(row.admission.price.currency, "USD", 4);
        row.admission.price.output_nanos = USAGE_PRICE_MAX_NANOS;
    }
    if (rec->type == JOURNAL_PROGRESS && !journal_progress_is_valid(&rec->progress))
        abort();
    if (rec->type != JOURNAL_ADMISSION && rec->type != JOURNAL_FINAL)
        return;
    buf_init(&b);
    usage_row_put_json(&b, &row);
    buf_dispose(&b);
}

static void put_u64(uint8_t *at, uint64_t v)
{
    memcpy(at, &v, sizeof v);
}

/* A segment's head; the version is its bytes 8 to 11. */
static void repair_head(uint8_t *d, uint8_t version)
{
    static const struct journal_head head = {.generation = 1, .number = 1, .first_seq = 1};
    struct buf b;

    buf_init(&b);
    journal_put_head(&b, &head);
    memcpy(d, b.data, b.len);
    buf_dispose(&b);
    d[8] = version;
    put_u64(d + JOURNAL_HEAD_BYTES - 8, XXH3_64bits(d, JOURNAL_HEAD_BYTES - 8));
}

/* Gives the head and every record that its length field leads to a right checksum, place,
 * generation and sequence. */
static void repair(uint8_t *d, size_t len, uint8_t version)
{
    size_t at = JOURNAL_HEAD_BYTES;
    uint64_t seq = 1;

    if (len < JOURNAL_HEAD_BYTES)
        return;
    repair_head(d, version);
    while (len - at >= JOURNAL_RECORD_HEAD_BYTES) {
        size_t payload = d[at + 8] | (size_t)d[at + 9] << 8;
        uint32_t place = (uint32_t)at;

        if (payload > len - at - JOURNAL_RECORD_HEAD_BYTES)
            return;
        d[at + 11] = 0;
        memcpy(d + at + 12, &place, sizeof place);
        put_u64(d + at + 20, 1);
        put_u64(d + at + 28, seq++);
        put_u64(d + at, XXH3_64bits(d + at + 8, JOURNAL_RECORD_HEAD_BYTES - 8 + payload));
        at += JOURNAL_RECORD_HEAD_BYTES + payload;
    }
}

static void read_segment(const uint8_t *data, size_t len)
{
    struct journal_record rec;
    struct journal_view v;
    enum journal_scan scan;
    size_t before = JOURNAL_HEAD_BYTES;

    if (journal_view_init(&v, data, len) != ST_OK)
        return;
    while ((scan = journal_next(&v, &rec)) == SCAN_RECORD) {
        if (v.pos <= before || v.pos > len)
            abort();
        before = v.pos;
        check_record(&rec);
    }
    if (v.pos != before || (scan == SCAN_END) != (v.pos == len))
        abort();
    /* Quadratic at worst, so only for what is short. */
    if (scan == SCAN_DAMAGED && len <= 65536 && journal_tail_is_torn(&v) &&
        v.pos < v.head.image_end)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t *copy;

    if (len == 0)
        return 0;
    /* A copy of its own size, so that the sanitizer sees every byte read past the end. */
    copy = malloc(len > 1 ? len - 1 : 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, data + 1, len - 1);
    if (data[0] == 'R' || data[0] == 'O')
        repair(copy, len - 1, data[0] == 'R' ? JOURNAL_VERSION : 1);
    read_segment(copy, len - 1);
    free(copy);
    return 0;
}
