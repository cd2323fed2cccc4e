#include "billing/journal_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>
#include <cmocka.h>

#include "tests/lib/journal_help.h"

#define GENERATION UINT64_C(0x1234567890ABCDEF)

/* A segment with `n` requests, each admitted, in progress and finished; everything durable as soon
 * as it is written when `durable` is set. */
static void build(struct buf *b, unsigned n, bool durable)
{
    struct journal_head head = {.generation = GENERATION,
                                .number = 7,
                                .first_seq = 100,
                                .prev_end = 5,
                                .prev_seq = 99,
                                .image_end = JOURNAL_HEAD_BYTES};
    struct journal_stamp s = {.generation = GENERATION, .seq = 100};

    buf_init(b);
    journal_put_head(b, &head);
    for (unsigned i = 0; i < n; i++, s.seq++) {
        struct billing_admission a = sample_admission(i);
        struct billing_final f = sample_final(i);
        struct journal_progress p = {sample_id(i), 1750000000500000, 10 + i, i / 2, i};

        journal_put_admission(b, 0, &s, &a);
        s.seq++;
        journal_put_progress(b, 0, &s, &p);
        s.seq++;
        journal_put_final(b, 0, &s, &f);
        s.seq++;
        journal_put_posted(b, 0, &s, s.seq - 1);
        if (durable)
            s.durable = b->len;
    }
    assert_false(b->failed);
}

static void assert_same_request(const struct journal_record *rec, unsigned i)
{
    struct billing_admission a = sample_admission(i);
    struct billing_final f = sample_final(i);

    switch (rec->type) {
    case JOURNAL_ADMISSION:
        assert_true(id_equal(&rec->admission.id, &a.id));
        assert_int_equal(rec->admission.admitted_at_us, a.admitted_at_us);
        assert_int_equal(rec->admission.tenant_id, a.tenant_id);
        assert_int_equal(rec->admission.key_id, a.key_id);
        assert_string_equal(rec->admission.model, a.model);
        assert_string_equal(rec->admission.endpoint, a.endpoint);
        assert_string_equal(rec->admission.client_request_id, a.client_request_id);
        assert_int_equal(rec->admission.stream, a.stream);
        assert_int_equal(rec->admission.prompt_tokens, a.prompt_tokens);
        assert_int_equal(rec->admission.price.id, a.price.id);
        assert_int_equal(rec->admission.price.input_nanos, a.price.input_nanos);
        assert_int_equal(rec->admission.price.cached_nanos, a.price.cached_nanos);
        assert_int_equal(rec->admission.price.output_nanos, a.price.output_nanos);
        assert_string_equal(rec->admission.price.currency, a.price.currency);
        return;
    case JOURNAL_PROGRESS:
        assert_int_equal(rec->progress.prompt_tokens, 10 + i);
        assert_int_equal(rec->progress.cached_tokens, i / 2);
        assert_int_equal(rec->progress.output_tokens, i);
        return;
    case JOURNAL_FINAL:
        assert_true(id_equal(&rec->final.id, &f.id));
        assert_int_equal(rec->final.ended_at_us, f.ended_at_us);
        assert_int_equal(rec->final.outcome, f.outcome);
        assert_string_equal(rec->final.finish_reason, f.finish_reason);
        assert_int_equal(rec->final.output_tokens, f.output_tokens);
        assert_int_equal(rec->final.ttft_us, f.ttft_us);
        return;
    case JOURNAL_POSTED:
        assert_int_equal(rec->posted_seq, rec->seq - 1);
        return;
    }
    fail();
}

static void what_was_written_is_read_across_blocks(void **state)
{
    const unsigned n = 300; /* some 150 KB: five blocks */
    struct journal_record rec;
    struct journal_view v;
    struct buf b;
    unsigned records = 0;

    (void)state;
    build(&b, n, true);
    assert_true(b.len > 3 * JOURNAL_BLOCK_BYTES);
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_OK);
    assert_int_equal(v.head.generation, GENERATION);
    assert_int_equal(v.head.number, 7);
    assert_int_equal(v.head.prev_seq, 99);
    while (journal_next(&v, &rec) == SCAN_RECORD) {
        assert_int_equal(rec.seq, 100 + records);
        assert_same_request(&rec, records++ / 4);
    }
    assert_int_equal(records, 4 * n);
    assert_int_equal(v.pos, b.len);
    buf_dispose(&b);
}

static void the_longest_texts_fit(void **state)
{
    struct journal_head head = {.generation = 1, .number = 1, .first_seq = 1};
    struct journal_stamp s = {.generation = 1, .seq = 1};
    struct billing_admission a = sample_admission(1);
    struct journal_record rec;
    struct journal_view v;
    struct buf b;

    (void)state;
    memset(a.model, 'm', sizeof a.model - 1);
    memset(a.endpoint, 'e', sizeof a.endpoint - 1);
    memset(a.client_request_id, 'c', sizeof a.client_request_id - 1);
    a.endpoint[sizeof a.endpoint - 1] = '\0';
    buf_init(&b);
    journal_put_head(&b, &head);
    journal_put_admission(&b, 0, &s, &a);
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_OK);
    assert_int_equal(journal_next(&v, &rec), SCAN_RECORD);
    assert_string_equal(rec.admission.client_request_id, a.client_request_id);
    buf_dispose(&b);
}

/* Reads to the end; returns how many records came before. */
static unsigned scan(struct journal_view *v, enum journal_scan *end)
{
    struct journal_record rec;
    unsigned n = 0;

    while ((*end = journal_next(v, &rec)) == SCAN_RECORD)
        n++;
    return n;
}

static void every_truncation_ends_at_a_record_or_is_seen(void **state)
{
    struct journal_view full, cut;
    struct journal_record rec;
    enum journal_scan end;
    struct buf b;
    size_t boundary = JOURNAL_HEAD_BYTES;
    unsigned before = 0;

    (void)state;
    build(&b, 70, false); /* crosses one block's end */
    assert_int_equal(journal_view_init(&full, b.data, b.len), ST_OK);
    for (size_t len = 0; len < JOURNAL_HEAD_BYTES; len++)
        assert_int_equal(journal_view_init(&cut, b.data, len), ST_CORRUPT);
    while (journal_next(&full, &rec) == SCAN_RECORD) {
        for (size_t len = boundary; len < full.pos; len++) {
            assert_int_equal(journal_view_init(&cut, b.data, len), ST_OK);
            assert_int_equal(scan(&cut, &end), before);
            assert_int_equal(cut.pos, boundary);
            assert_int_equal(end, len == boundary ? SCAN_END : SCAN_DAMAGED);
            assert_true(end == SCAN_END || journal_tail_is_torn(&cut));
        }
        boundary = full.pos;
        before++;
    }
    buf_dispose(&b);
}

static void every_changed_byte_is_seen_at_its_record(void **state)
{
    struct journal_view v;
    enum journal_scan end;
    struct buf b;
    unsigned all;

    (void)state;
    build(&b, 70, true);
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_OK);
    all = scan(&v, &end);
    for (size_t i = 0; i < b.len; i++) {
        b.data[i] ^= (char)(1 << i % 8);
        if (journal_view_init(&v, b.data, b.len) == ST_OK) {
            assert_true(i >= JOURNAL_HEAD_BYTES);
            assert_true(scan(&v, &end) < all);
            assert_int_equal(end, SCAN_DAMAGED);
            assert_true(v.pos <= i);
        }
        b.data[i] ^= (char)(1 << i % 8);
    }
    buf_dispose(&b);
}

static void damage_before_what_was_durable_is_no_torn_tail(void **state)
{
    struct journal_view v;
    enum journal_scan end;
    struct buf b;

    (void)state;
    build(&b, 20, true);
    b.data[JOURNAL_HEAD_BYTES + 50] ^= 1;
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_OK);
    scan(&v, &end);
    assert_false(journal_tail_is_torn(&v));
    buf_dispose(&b);
}

/* After a power failure the disk may have a later block and not an earlier one. */
static void a_hole_in_what_was_not_durable_is_a_torn_tail(void **state)
{
    struct journal_view v;
    enum journal_scan end;
    struct buf b;

    (void)state;
    build(&b, 20, false);
    memset(b.data + 4096, 0, 512);
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_OK);
    scan(&v, &end);
    assert_int_equal(end, SCAN_DAMAGED);
    assert_true(journal_tail_is_torn(&v));
    buf_dispose(&b);
}

static void damage_in_the_first_content_is_no_torn_tail(void **state)
{
    struct journal_head head = {.generation = 1, .number = 1, .first_seq = 1};
    struct journal_stamp s = {.generation = 1, .seq = 1};
    struct journal_view v;
    enum journal_scan end;
    struct buf b, front;

    (void)state;
    buf_init(&b);
    buf_init(&front);
    journal_put_head(&b, &head);
    journal_put_posted(&b, 0, &s, 0);
    head.image_end = b.len;
    journal_put_head(&front, &head);
    memcpy(b.data, front.data, front.len);
    b.data[b.len - 1] ^= 1;
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_OK);
    scan(&v, &end);
    assert_int_equal(end, SCAN_DAMAGED);
    assert_false(journal_tail_is_torn(&v));
    buf_dispose(&b);
    buf_dispose(&front);
}

static void a_record_of_another_generation_is_no_record(void **state)
{
    struct journal_head head = {.generation = 1, .number = 1, .first_seq = 1};
    struct journal_stamp s = {.generation = 2, .seq = 1};
    struct journal_record rec;
    struct journal_view v;
    struct buf b;

    (void)state;
    buf_init(&b);
    journal_put_head(&b, &head);
    journal_put_posted(&b, 0, &s, 0);
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_OK);
    assert_int_equal(journal_next(&v, &rec), SCAN_DAMAGED);
    buf_dispose(&b);
}

/* The version is the head's bytes 8 to 11, its checksum the last 8. */
static void a_later_version_is_refused(void **state)
{
    struct journal_head head = {.generation = 1, .number = 1, .first_seq = 1};
    struct journal_view v;
    uint64_t sum;
    struct buf b;

    (void)state;
    buf_init(&b);
    journal_put_head(&b, &head);
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_OK);
    assert_int_equal(v.head.version, JOURNAL_VERSION);
    b.data[8]++;
    sum = XXH3_64bits(b.data, JOURNAL_HEAD_BYTES - 8);
    memcpy(b.data + JOURNAL_HEAD_BYTES - 8, &sum, sizeof sum);
    assert_int_equal(journal_view_init(&v, b.data, b.len), ST_CORRUPT);
    buf_dispose(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read_across_blocks),
        cmocka_unit_test(the_longest_texts_fit),
        cmocka_unit_test(every_truncation_ends_at_a_record_or_is_seen),
        cmocka_unit_test(every_changed_byte_is_seen_at_its_record),
        cmocka_unit_test(damage_before_what_was_durable_is_no_torn_tail),
        cmocka_unit_test(a_hole_in_what_was_not_durable_is_a_torn_tail),
        cmocka_unit_test(damage_in_the_first_content_is_no_torn_tail),
        cmocka_unit_test(a_record_of_another_generation_is_no_record),
        cmocka_unit_test(a_later_version_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
