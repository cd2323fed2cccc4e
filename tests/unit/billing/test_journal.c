#include "billing/journal.h"

#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "tests/lib/journal_help.h"
#include "tests/lib/poll_loop.h"

#define RECOVERY_MS 5000

/* A disk that fails or waits when told to. */
struct disk {
    atomic_int write_errno;   /* 0: writes work; else they write half and then fail with it */
    atomic_int sync_errno;    /* 0: works */
    atomic_int syncs_to_fail; /* -1: all, while sync_errno is set */
    atomic_int syncs;
    atomic_bool gate; /* a sync posts `entered` and waits for `go` */
    sem_t entered, go;
};

static ssize_t disk_pwrite(void *arg, int fd, const void *data, size_t len, off_t at)
{
    struct disk *d = arg;
    int err = atomic_load(&d->write_errno);

    if (err == 0)
        return pwrite(fd, data, len, at);
    if (len > 1)
        return pwrite(fd, data, len / 2, at);
    errno = err;
    return -1;
}

static int disk_fdatasync(void *arg, int fd)
{
    struct disk *d = arg;
    int err = atomic_load(&d->sync_errno);

    atomic_fetch_add(&d->syncs, 1);
    if (atomic_load(&d->gate)) {
        sem_post(&d->entered);
        sem_wait(&d->go);
    }
    if (err == 0 || atomic_load(&d->syncs_to_fail) == 0)
        return fdatasync(fd);
    if (atomic_load(&d->syncs_to_fail) > 0)
        atomic_fetch_sub(&d->syncs_to_fail, 1);
    errno = err;
    return -1;
}

struct fixture {
    char dir[TEMP_DIR_BYTES];
    struct loop *loop;
    struct disk disk;
    struct journal_io io;
    struct journal *j;
};

static void reopen(struct fixture *f, size_t segment_bytes, size_t rows_in_memory)
{
    if (f->j != NULL)
        journal_close(f->j);
    f->j = open_journal(f->dir, segment_bytes, rows_in_memory, &f->io);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    temp_dir_make(f->dir);
    f->loop = poll_loop_new();
    sem_init(&f->disk.entered, 0, 0);
    sem_init(&f->disk.go, 0, 0);
    f->io = (struct journal_io){disk_pwrite, disk_fdatasync, &f->disk};
    reopen(f, 1 << 20, 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    journal_close(f->j);
    poll_loop_free(f->loop);
    temp_dir_remove(f->dir);
    sem_destroy(&f->disk.entered);
    sem_destroy(&f->disk.go);
    free(f);
    return 0;
}

static enum status admit(struct fixture *f, unsigned n)
{
    struct billing_admission a = sample_admission(n);

    return admit_and_wait(f->j, f->loop, &a);
}

static enum status finish(struct fixture *f, unsigned n)
{
    struct billing_final final = sample_final(n);

    return finish_and_wait(f->j, f->loop, &final);
}

static bool is_ok(struct fixture *f)
{
    struct journal_stats s;

    journal_stats(f->j, &s);
    return s.is_ok;
}

static void wait_recovered(struct fixture *f)
{
    /* The loop only passes the time here: the journal's thread tries again by itself. */
    for (int ms = 0; ms < RECOVERY_MS && !is_ok(f); ms += 20)
        poll_loop_turn(f->loop, 20);
    assert_true(is_ok(f));
}

/* ---- the usual ---- */

static void a_finished_request_is_one_row(void **state)
{
    struct fixture *f = *state;
    struct usage_row rows[4];

    assert_int_equal(admit(f, 1), ST_OK);
    assert_int_equal(finish(f, 1), ST_OK);
    assert_int_equal(take_all(f->j, rows, 4), 1);
    assert_true(id_equal(&rows[0].admission.id, &rows[0].final.id));
    assert_string_equal(rows[0].admission.client_request_id, "client-1");
    assert_int_equal(rows[0].final.output_tokens, 1);
}

static void mistakes_of_the_caller_are_refused(void **state)
{
    struct fixture *f = *state;
    struct billing_admission bad = sample_admission(2);

    assert_int_equal(finish(f, 1), ST_NOT_FOUND);
    assert_int_equal(admit(f, 1), ST_OK);
    assert_int_equal(admit(f, 1), ST_CONFLICT);
    assert_int_equal(finish(f, 1), ST_OK);
    assert_int_equal(finish(f, 1), ST_NOT_FOUND);
    bad.prompt_tokens = -1;
    assert_int_equal(admit_and_wait(f->j, f->loop, &bad), ST_INVALID);
}

static void a_second_process_finds_it_locked(void **state)
{
    struct fixture *f = *state;
    struct journal_config cfg = {.dir = f->dir, .segment_bytes = 1 << 20};
    struct journal *other = NULL;
    struct reason why;

    assert_int_equal(journal_open(&cfg, &other, &why), ST_CONFLICT);
    assert_null(other);
}

/* ---- group commit ---- */

struct group {
    struct billing_write writes[50];
    atomic_int done, good;
};
static struct group *the_group; /* on_done has no argument of the test's own */

static void on_group_done(struct billing_write *w)
{
    the_group->good += w->status == ST_OK;
    the_group->done++;
}

static bool is_group_done(void *arg)
{
    return ((struct group *)arg)->done == 50;
}

static void finals_that_come_while_the_disk_syncs_share_the_next_sync(void **state)
{
    struct fixture *f = *state;
    struct group g = {.done = 0};
    int before;

    the_group = &g;
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(admit(f, i), ST_OK);
    before = atomic_load(&f->disk.syncs);
    atomic_store(&f->disk.gate, true);
    for (unsigned i = 0; i < 50; i++) {
        g.writes[i] = (struct billing_write){.loop = f->loop,
                                             .on_done = on_group_done,
                                             .kind = JOURNAL_WRITE_FINAL,
                                             .record = {.final = sample_final(i)}};
        journal_submit(f->j, &g.writes[i]);
        if (i == 0)
            sem_wait(&f->disk.entered);
    }
    assert_int_equal(g.done, 0);
    atomic_store(&f->disk.gate, false);
    sem_post(&f->disk.go);
    assert_true(poll_loop_run_until(f->loop, is_group_done, &g, RECOVERY_MS));
    assert_int_equal(g.good, 50);
    assert_int_equal(atomic_load(&f->disk.syncs) - before, 2);
}

static void admissions_wait_for_no_sync(void **state)
{
    struct fixture *f = *state;
    int before = atomic_load(&f->disk.syncs);

    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(admit(f, i), ST_OK);
    assert_int_equal(atomic_load(&f->disk.syncs), before);
}

/* ---- faults ---- */

static void a_failed_sync_moves_everything_to_a_new_segment(void **state)
{
    struct fixture *f = *state;
    struct usage_row rows[4];

    assert_int_equal(admit(f, 1), ST_OK);
    assert_int_equal(admit(f, 2), ST_OK);
    atomic_store(&f->disk.syncs_to_fail, 1);
    atomic_store(&f->disk.sync_errno, EIO);
    assert_int_equal(finish(f, 1), ST_OK);
    assert_true(is_ok(f));
    assert_int_equal(take_all(f->j, rows, 4), 1);
    reopen(f, 1 << 20, 0);
    assert_int_equal(take_all(f->j, rows, 4), 2);
    assert_int_equal(rows[0].final.outcome, OUTCOME_COMPLETED);
    assert_int_equal(rows[1].final.outcome, OUTCOME_INTERRUPTED);
}

static void what_a_failed_sync_left_behind_is_never_read_again(void **state)
{
    struct fixture *f = *state;
    struct usage_row rows[4];
    char *data;
    size_t len;

    assert_int_equal(admit(f, 2), ST_OK);
    assert_int_equal(finish(f, 2), ST_OK); /* not posted: keeps the segment */
    assert_int_equal(admit(f, 1), ST_OK);
    atomic_store(&f->disk.syncs_to_fail, 1);
    atomic_store(&f->disk.sync_errno, EIO);
    assert_int_equal(finish(f, 1), ST_OK);
    journal_close(f->j);
    /* The kernel may have dropped those pages: any content is possible. */
    data = segment_get(f->dir, 1, &len);
    memset(data + len - 20, 0xA5, 20);
    segment_put(f->dir, 1, data, len);
    free(data);
    f->j = open_journal(f->dir, 1 << 20, 0, &f->io);
    assert_int_equal(take_all(f->j, rows, 4), 2);
    assert_int_equal(rows[0].final.outcome, OUTCOME_COMPLETED);
    assert_int_equal(rows[1].final.outcome, OUTCOME_COMPLETED);
}

static void a_final_that_could_not_be_written_is_written_later(void **state)
{
    struct fixture *f = *state;
    struct usage_row rows[4];

    assert_int_equal(admit(f, 1), ST_OK);
    atomic_store(&f->disk.syncs_to_fail, -1);
    atomic_store(&f->disk.sync_errno, EIO);
    assert_int_equal(finish(f, 1), ST_IO);
    assert_false(is_ok(f));
    assert_int_equal(finish(f, 1), ST_CONFLICT);
    atomic_store(&f->disk.sync_errno, 0);
    wait_recovered(f);
    assert_int_equal(take_all(f->j, rows, 4), 1);
    assert_int_equal(rows[0].final.outcome, OUTCOME_COMPLETED);
    assert_int_equal(rows[0].final.output_tokens, 1);
}

static void a_full_disk_refuses_and_recovers_when_space_returns(void **state)
{
    struct fixture *f = *state;
    struct usage_row rows[8];

    assert_int_equal(admit(f, 1), ST_OK);
    atomic_store(&f->disk.write_errno, ENOSPC);
    assert_int_equal(admit(f, 2), ST_NO_SPACE);
    assert_int_equal(finish(f, 1), ST_NO_SPACE);
    assert_false(is_ok(f));
    atomic_store(&f->disk.write_errno, 0);
    wait_recovered(f);
    assert_int_equal(admit(f, 3), ST_OK);
    assert_int_equal(finish(f, 3), ST_OK);
    assert_int_equal(take_all(f->j, rows, 8), 2);
    reopen(f, 1 << 20, 0);
    /* Neither a half record nor the refused admission is in the files. */
    assert_int_equal(take_all(f->j, rows, 8), 2);
    assert_int_equal(rows[0].final.output_tokens, 1);
    assert_int_equal(rows[1].final.output_tokens, 3);
}

static void a_crash_while_the_disk_is_full_leaves_no_half_record(void **state)
{
    struct fixture *f = *state;
    struct usage_row rows[4];

    assert_int_equal(admit(f, 1), ST_OK);
    atomic_store(&f->disk.write_errno, ENOSPC);
    assert_int_equal(admit(f, 2), ST_NO_SPACE);
    journal_close(f->j);
    atomic_store(&f->disk.write_errno, 0);
    f->j = open_journal(f->dir, 1 << 20, 0, &f->io);
    assert_int_equal(take_all(f->j, rows, 4), 1);
    assert_int_equal(rows[0].final.outcome, OUTCOME_INTERRUPTED);
}

static void a_start_on_a_full_disk_is_refused(void **state)
{
    struct fixture *f = *state;
    struct journal_config cfg = {.dir = f->dir, .segment_bytes = 1 << 20, .io = &f->io};
    struct journal *j = NULL;
    struct reason why;

    journal_close(f->j);
    atomic_store(&f->disk.write_errno, ENOSPC);
    assert_int_equal(journal_open(&cfg, &j, &why), ST_NO_SPACE);
    atomic_store(&f->disk.write_errno, 0);
    f->j = open_journal(f->dir, 1 << 20, 0, &f->io);
}

/* ---- segments ---- */

static void posted_segments_go_though_a_request_stays_open(void **state)
{
    struct fixture *f = *state;
    struct usage_row row;
    struct reason why;
    size_t n;

    reopen(f, 8192, 0);
    assert_int_equal(admit(f, 0), ST_OK);
    for (unsigned i = 1; i <= 400; i++) {
        assert_int_equal(admit(f, i), ST_OK);
        assert_int_equal(finish(f, i), ST_OK);
        assert_int_equal(row_source_take(journal_rows(f->j), &row, 1, &n, &why), ST_OK);
        assert_int_equal(n, 1);
        journal_posted(f->j, row.seq, 1);
    }
    assert_int_equal(finish(f, 0), ST_OK);
    assert_true(segment_count(f->dir) <= 3);
    assert_int_equal(row_source_take(journal_rows(f->j), &row, 1, &n, &why), ST_OK);
    assert_int_equal(n, 1);
    assert_string_equal(row.admission.client_request_id, "client-0");
}

static void unposted_rows_keep_their_segments(void **state)
{
    static struct usage_row rows[400];
    struct fixture *f = *state;

    reopen(f, 8192, 0);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(admit(f, i), ST_OK);
        assert_int_equal(finish(f, i), ST_OK);
    }
    assert_true(segment_count(f->dir) > 5);
    reopen(f, 8192, 0);
    assert_int_equal(take_all(f->j, rows, 400), 300);
}

static void rows_beyond_the_memory_come_from_the_disk_in_order(void **state)
{
    static struct usage_row rows[400];
    struct fixture *f = *state;
    size_t n = 0;

    reopen(f, 8192, 4);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(admit(f, i), ST_OK);
        assert_int_equal(finish(f, i), ST_OK);
    }
    n += take_all(f->j, rows, 50);
    for (unsigned i = 100; i < 150; i++) {
        assert_int_equal(admit(f, i), ST_OK);
        assert_int_equal(finish(f, i), ST_OK);
    }
    n += take_all(f->j, rows + n, 350);
    for (unsigned i = 150; i < 153; i++) {
        assert_int_equal(admit(f, i), ST_OK);
        assert_int_equal(finish(f, i), ST_OK);
    }
    n += take_all(f->j, rows + n, 200);
    assert_int_equal(n, 153);
    for (unsigned i = 0; i < n; i++) {
        struct id id = sample_id(i);

        assert_true(id_equal(&rows[i].final.id, &id));
        assert_true(id_equal(&rows[i].admission.id, &id));
    }
}

static void reading_from_the_disk_survives_the_deletion_of_segments(void **state)
{
    struct fixture *f = *state;
    struct usage_row row;
    struct reason why;
    size_t n;

    reopen(f, 8192, 2);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(admit(f, i), ST_OK);
        assert_int_equal(finish(f, i), ST_OK);
    }
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(row_source_take(journal_rows(f->j), &row, 1, &n, &why), ST_OK);
        assert_int_equal(n, 1);
        assert_int_equal(row.final.output_tokens, i);
        journal_posted(f->j, row.seq, 1);
        /* An answer: the journal's thread has had its turn, and deleted what it could. */
        assert_int_equal(admit(f, 1000 + i), ST_OK);
    }
    assert_true(segment_count(f->dir) <= 20);
}

static void posted_rows_are_not_given_out_again(void **state)
{
    struct fixture *f = *state;
    struct usage_row rows[8];
    struct journal_stats stats;

    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(admit(f, i), ST_OK);
        assert_int_equal(finish(f, i), ST_OK);
    }
    assert_int_equal(take_all(f->j, rows, 4), 4);
    journal_posted(f->j, rows[3].seq, 4);
    reopen(f, 1 << 20, 0);
    journal_stats(f->j, &stats);
    assert_int_equal(stats.replayed, 2);
    assert_int_equal(stats.unposted, 2);
    assert_int_equal(take_all(f->j, rows, 8), 2);
    assert_int_equal(rows[0].final.output_tokens, 4);
}

static void a_request_that_was_open_is_interrupted_with_its_progress(void **state)
{
    struct fixture *f = *state;
    struct journal_progress p = {sample_id(1), INT64_C(1750000000700000), 11, 64};
    struct usage_row rows[4];

    assert_int_equal(admit(f, 1), ST_OK);
    journal_progress(f->j, &p);
    assert_int_equal(admit(f, 2), ST_OK);
    reopen(f, 1 << 20, 0);
    assert_int_equal(take_all(f->j, rows, 4), 2);
    if (rows[0].final.output_tokens == 0) {
        struct usage_row swap = rows[0];

        rows[0] = rows[1];
        rows[1] = swap;
    }
    assert_int_equal(rows[0].final.outcome, OUTCOME_INTERRUPTED);
    assert_int_equal(rows[0].final.prompt_tokens, 11);
    assert_int_equal(rows[0].final.output_tokens, 64);
    assert_int_equal(rows[0].final.ended_at_us, p.at_us);
    assert_int_equal(rows[1].final.prompt_tokens, 0);
    assert_int_equal(usage_row_cost(&rows[1]), 0);
}

struct holding {
    struct billing_final finals[4];
    size_t n;
};

static bool hold(void *arg, const struct billing_admission *a, const struct billing_final *f)
{
    const struct id held = sample_id(1);
    struct holding *h = arg;

    assert_true(id_equal(&a->id, &f->id));
    h->finals[h->n++] = *f;
    return id_equal(&a->id, &held);
}

static void reopen_holding(struct fixture *f, struct holding *h)
{
    const struct journal_config cfg = {
        .dir = f->dir, .segment_bytes = 1 << 20, .on_interrupted = hold, .arg = h};
    struct reason why;

    h->n = 0;
    journal_close(f->j);
    assert_int_equal(journal_open(&cfg, &f->j, &why), ST_OK);
}

static void a_request_that_is_held_stays_open_until_it_is_finished(void **state)
{
    struct journal_progress p = {.id = sample_id(1),
                                 .at_us = INT64_C(1750000000700000),
                                 .prompt_tokens = 11,
                                 .output_tokens = 64};
    struct fixture *f = *state;
    struct usage_row rows[4];
    struct holding h;

    assert_int_equal(admit(f, 1), ST_OK);
    journal_progress(f->j, &p);
    assert_int_equal(admit(f, 2), ST_OK);
    reopen_holding(f, &h);
    assert_int_equal(h.n, 2);
    assert_int_equal(take_all(f->j, rows, 4), 1);
    assert_int_equal(rows[0].admission.prompt_tokens, 12);
    journal_posted(f->j, rows[0].seq, 1);
    /* As often as gateways die before it has ended. */
    for (int i = 0; i < 2; i++) {
        reopen_holding(f, &h);
        assert_int_equal(h.n, 1);
        assert_int_equal(h.finals[0].outcome, OUTCOME_INTERRUPTED);
        assert_int_equal(h.finals[0].output_tokens, 64);
        assert_int_equal(h.finals[0].ended_at_us, p.at_us);
        assert_int_equal(take_all(f->j, rows, 4), 0);
    }
    h.finals[0].output_tokens = 70;
    assert_int_equal(finish_and_wait(f->j, f->loop, &h.finals[0]), ST_OK);
    assert_int_equal(finish_and_wait(f->j, f->loop, &h.finals[0]), ST_NOT_FOUND);
    reopen_holding(f, &h);
    assert_int_equal(h.n, 0);
    assert_int_equal(take_all(f->j, rows, 4), 1);
    assert_int_equal(rows[0].final.output_tokens, 70);
    assert_int_equal(rows[0].final.outcome, OUTCOME_INTERRUPTED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_finished_request_is_one_row),
        TEST(mistakes_of_the_caller_are_refused),
        TEST(a_second_process_finds_it_locked),
        TEST(finals_that_come_while_the_disk_syncs_share_the_next_sync),
        TEST(admissions_wait_for_no_sync),
        TEST(a_failed_sync_moves_everything_to_a_new_segment),
        TEST(what_a_failed_sync_left_behind_is_never_read_again),
        TEST(a_final_that_could_not_be_written_is_written_later),
        TEST(a_full_disk_refuses_and_recovers_when_space_returns),
        TEST(a_crash_while_the_disk_is_full_leaves_no_half_record),
        TEST(a_start_on_a_full_disk_is_refused),
        TEST(posted_segments_go_though_a_request_stays_open),
        TEST(unposted_rows_keep_their_segments),
        TEST(rows_beyond_the_memory_come_from_the_disk_in_order),
        TEST(reading_from_the_disk_survives_the_deletion_of_segments),
        TEST(posted_rows_are_not_given_out_again),
        TEST(a_request_that_was_open_is_interrupted_with_its_progress),
        TEST(a_request_that_is_held_stays_open_until_it_is_finished),
    };

    /* The faults are logged, as they should be. */
    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
