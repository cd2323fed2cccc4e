#include "billing/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "tests/lib/journal_help.h"
#include "tests/lib/poll_loop.h"

#define N 12

/* A folder with one segment as a killed process leaves it: N requests, of which every third is
 * still open, some with progress, and the first four posted. */
struct run {
    char dir[TEMP_DIR_BYTES];
    char *data;
    size_t len;
};

static void record_requests(struct journal *j, struct loop *l, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        struct billing_admission a = sample_admission(i);
        struct billing_final f = sample_final(i);
        struct journal_progress p = {sample_id(i), 1750000000500000, 10 + i, 0, 3};

        assert_int_equal(admit_and_wait(j, l, &a), ST_OK);
        journal_progress(j, &p);
        if (i % 3 != 0)
            assert_int_equal(finish_and_wait(j, l, &f), ST_OK);
    }
}

static void record(struct run *r)
{
    struct loop *l = poll_loop_new();
    struct usage_row row;
    struct journal *j;
    struct reason why;
    size_t n;

    temp_dir_make(r->dir);
    j = open_journal(r->dir, 1 << 20, 0, NULL);
    record_requests(j, l, 0, N / 2);
    assert_int_equal(row_source_take(journal_rows(j), &row, 1, &n, &why), ST_OK);
    assert_int_equal(n, 1);
    journal_posted(j, row.seq, 1);
    record_requests(j, l, N / 2, N);
    journal_close(j);
    r->data = segment_get(r->dir, 1, &r->len);
    poll_loop_free(l);
}

static void forget(struct run *r)
{
    free(r->data);
    temp_dir_remove(r->dir);
}

static enum status replay(const char *dir, struct replay *out, struct reason *why)
{
    struct journal_dir d;
    enum status s;

    assert_int_equal(journal_dir_open(&d, dir, &journal_io_real, why), ST_OK);
    s = replay_run(&d, out, why);
    journal_dir_close(&d);
    return s;
}

/* What the whole records within the first `len` bytes say, counted without the code under test. */
struct expected {
    unsigned open, finals;
    size_t end;
};

static struct expected expect(const struct run *r, size_t len)
{
    struct expected e = {.end = JOURNAL_HEAD_BYTES};
    struct journal_record rec;
    struct journal_view v;

    assert_int_equal(journal_view_init(&v, r->data, r->len), ST_OK);
    while (journal_next(&v, &rec) == SCAN_RECORD && v.pos <= len) {
        e.end = v.pos;
        if (rec.type == JOURNAL_ADMISSION)
            e.open++;
        if (rec.type == JOURNAL_FINAL) {
            e.open--;
            e.finals++;
        }
    }
    return e;
}

static size_t image_end(const struct run *r)
{
    struct journal_view v;

    assert_int_equal(journal_view_init(&v, r->data, r->len), ST_OK);
    return v.head.image_end;
}

static void a_crash_at_any_byte_loses_no_whole_record(void **state)
{
    struct replay got;
    struct reason why;
    struct run r;
    size_t image;

    (void)state;
    record(&r);
    image = image_end(&r);
    for (size_t len = image; len <= r.len; len++) {
        struct expected e = expect(&r, len);

        segment_put(r.dir, 1, r.data, len);
        assert_int_equal(replay(r.dir, &got, &why), ST_OK);
        assert_int_equal(got.live.count, e.open);
        assert_int_equal(got.prev_end, e.end);
        assert_true(got.n_unposted <= e.finals && got.n_unposted + 1 >= e.finals);
        replay_dispose(&got);
    }
    forget(&r);
}

static void a_segment_cut_within_its_first_content_is_refused(void **state)
{
    struct replay got;
    struct reason why;
    struct run r;
    size_t image;

    (void)state;
    record(&r);
    image = image_end(&r);
    for (size_t len = 0; len < image; len++) {
        segment_put(r.dir, 1, r.data, len);
        assert_int_equal(replay(r.dir, &got, &why), ST_CORRUPT);
        assert_non_null(strstr(why.text, "0000000000000001.seg"));
    }
    forget(&r);
}

/* The whole start of a journal after each crash: every admitted request has exactly one row,
 * finished ones as they ended, open ones interrupted with the tokens of their last progress. */
static void every_request_is_one_row_after_a_crash_at_any_record(void **state)
{
    struct usage_row rows[N + 1];
    struct run r;
    size_t last = 0;

    (void)state;
    record(&r);
    for (size_t len = image_end(&r); len <= r.len; len++) {
        struct expected e = expect(&r, len);
        struct journal *j;
        size_t n, interrupted = 0;

        if (e.end == last)
            continue;
        last = e.end;
        temp_dir_clear(r.dir);
        segment_put(r.dir, 1, r.data, len);
        /* Twice, as if the next start had crashed too. */
        journal_close(open_journal(r.dir, 1 << 20, 0, NULL));
        j = open_journal(r.dir, 1 << 20, 0, NULL);
        n = take_all(j, rows, N + 1);
        for (size_t i = 0; i < n; i++) {
            bool is_open = rows[i].final.outcome == OUTCOME_INTERRUPTED;

            interrupted += is_open;
            assert_true(!is_open || rows[i].final.output_tokens == 3 ||
                        rows[i].final.output_tokens == 0);
            for (size_t k = 0; k < i; k++)
                assert_false(id_equal(&rows[i].admission.id, &rows[k].admission.id));
        }
        assert_int_equal(interrupted, e.open);
        assert_true(n <= e.open + e.finals && n + 1 >= e.open + e.finals);
        journal_close(j);
    }
    forget(&r);
}

static void a_changed_byte_is_never_taken_for_data(void **state)
{
    struct replay got;
    struct reason why;
    struct run r;

    (void)state;
    record(&r);
    for (size_t i = 0; i < r.len; i++) {
        enum status s;

        r.data[i] ^= 0x10;
        segment_put(r.dir, 1, r.data, r.len);
        s = replay(r.dir, &got, &why);
        assert_true(s == ST_CORRUPT || s == ST_OK);
        if (s == ST_OK) {
            assert_true(got.prev_end <= i);
            replay_dispose(&got);
        }
        r.data[i] ^= 0x10;
    }
    forget(&r);
}

/* ---- several segments ---- */

static void make_two_segments(struct run *r)
{
    record(r);
    journal_close(open_journal(r->dir, 1 << 20, 0, NULL));
    assert_int_equal(segment_count(r->dir), 2);
}

static void damage_before_the_last_segment_is_refused_with_its_place(void **state)
{
    struct replay got;
    struct reason why;
    struct run r;
    size_t end;

    (void)state;
    make_two_segments(&r);
    assert_int_equal(replay(r.dir, &got, &why), ST_OK);
    replay_dispose(&got);
    end = expect(&r, r.len).end;
    for (size_t i = 0; i < end; i += 7) {
        r.data[i] ^= 1;
        segment_put(r.dir, 1, r.data, r.len);
        assert_int_equal(replay(r.dir, &got, &why), ST_CORRUPT);
        assert_non_null(strstr(why.text, "0000000000000001.seg"));
        assert_non_null(strstr(why.text, "offset"));
        r.data[i] ^= 1;
    }
    for (size_t len = 0; len < end; len += 13) {
        segment_put(r.dir, 1, r.data, len);
        assert_int_equal(replay(r.dir, &got, &why), ST_CORRUPT);
    }
    forget(&r);
}

static void a_torn_tail_stays_cut_when_a_segment_follows(void **state)
{
    struct replay got;
    struct reason why;
    struct run r;

    (void)state;
    record(&r);
    segment_put(r.dir, 1, r.data, r.len - 5);
    journal_close(open_journal(r.dir, 1 << 20, 0, NULL));
    /* Whatever stands behind the cut is not read. */
    segment_put(r.dir, 1, r.data, r.len);
    assert_int_equal(replay(r.dir, &got, &why), ST_OK);
    replay_dispose(&got);
    forget(&r);
}

static void a_missing_segment_is_refused_by_name(void **state)
{
    struct replay got;
    struct reason why;
    struct run r;

    (void)state;
    record(&r);
    segment_put(r.dir, 3, r.data, r.len);
    assert_int_equal(replay(r.dir, &got, &why), ST_CORRUPT);
    assert_non_null(strstr(why.text, "0000000000000002.seg"));
    forget(&r);
}

static void a_segment_under_another_s_name_is_refused(void **state)
{
    struct replay got;
    struct reason why;
    struct run r;

    (void)state;
    record(&r);
    segment_put(r.dir, 2, r.data, r.len);
    assert_int_equal(replay(r.dir, &got, &why), ST_CORRUPT);
    forget(&r);
}

static void an_empty_folder_begins_at_one(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct replay got;
    struct reason why;

    (void)state;
    temp_dir_make(dir);
    assert_int_equal(replay(dir, &got, &why), ST_OK);
    assert_int_equal(got.next_number, 1);
    assert_int_equal(got.live.count, 0);
    replay_dispose(&got);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_at_any_byte_loses_no_whole_record),
        cmocka_unit_test(a_segment_cut_within_its_first_content_is_refused),
        cmocka_unit_test(every_request_is_one_row_after_a_crash_at_any_record),
        cmocka_unit_test(a_changed_byte_is_never_taken_for_data),
        cmocka_unit_test(damage_before_the_last_segment_is_refused_with_its_place),
        cmocka_unit_test(a_torn_tail_stays_cut_when_a_segment_follows),
        cmocka_unit_test(a_missing_segment_is_refused_by_name),
        cmocka_unit_test(a_segment_under_another_s_name_is_refused),
        cmocka_unit_test(an_empty_folder_begins_at_one),
    };

    /* A cut is logged each time: thousands of lines. */
    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
