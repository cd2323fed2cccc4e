/* What a request is billed when its gateway died: what its last progress record says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/lib/journal_help.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define PROGRESS_US INT64_C(1750000000700000)

struct fixture {
    char dir[TEMP_DIR_BYTES];
    struct loop *loop;
    struct journal *j;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    temp_dir_make(f->dir);
    f->loop = poll_loop_new();
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    journal_close(f->j);
    poll_loop_free(f->loop);
    temp_dir_remove(f->dir);
    free(f);
    return 0;
}

static void reopen(struct fixture *f)
{
    if (f->j != NULL)
        journal_close(f->j);
    f->j = open_journal(f->dir, 1 << 20, 0, NULL);
}

/* Closing ends no request: the next opening finds it as a killed gateway would leave it. */
static void admit(struct fixture *f, unsigned n)
{
    struct billing_admission a = sample_admission(n);

    a.price.request_nanos = 7000000;
    if (f->j == NULL)
        reopen(f);
    assert_int_equal(admit_and_wait(f->j, f->loop, &a), ST_OK);
}

static struct usage_row row_after_death(struct fixture *f)
{
    struct usage_row rows[2];

    reopen(f);
    assert_int_equal(take_all(f->j, rows, 2), 1);
    assert_int_equal(rows[0].final.outcome, OUTCOME_INTERRUPTED);
    return rows[0];
}

static void cached_tokens_are_billed_at_their_own_price(void **state)
{
    struct fixture *f = *state;
    struct journal_progress p = {sample_id(1), PROGRESS_US, 11, 8, 64};
    struct usage_row row;

    admit(f, 1);
    journal_progress(f->j, &p);
    row = row_after_death(f);
    assert_int_equal(row.final.prompt_tokens, 11);
    assert_int_equal(row.final.cached_tokens, 8);
    assert_int_equal(row.final.output_tokens, 64);
    assert_int_equal(row.final.ended_at_us, PROGRESS_US);
    /* 3 at 100, 8 at 50 and 64 at 400 nano-units each, and the request's own price. */
    assert_int_equal(usage_row_cost(&row), 3 * 100 + 8 * 50 + 64 * 400 + 7000000);
}

static void before_the_prefill_is_complete_nothing_is_billed(void **state)
{
    struct fixture *f = *state;
    struct journal_progress p = {sample_id(2), PROGRESS_US, 0, 0, 0};
    struct usage_row rows[4];

    admit(f, 1); /* no progress at all */
    admit(f, 2);
    journal_progress(f->j, &p);
    reopen(f);
    assert_int_equal(take_all(f->j, rows, 4), 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rows[i].final.outcome, OUTCOME_INTERRUPTED);
        assert_int_equal(rows[i].final.prompt_tokens, 0);
        assert_int_equal(rows[i].final.cached_tokens, 0);
        assert_int_equal(usage_row_cost(&rows[i]), 0); /* nor the request's own price */
    }
}

/* A record that its reader would take for damage must not get into the journal. */
static void progress_out_of_bounds_is_not_written(void **state)
{
    struct fixture *f = *state;
    struct journal_progress good = {sample_id(1), PROGRESS_US, 11, 8, 64};
    struct journal_progress bad = {sample_id(1), PROGRESS_US, 11, 12, 96};

    admit(f, 1);
    journal_progress(f->j, &good);
    journal_progress(f->j, &bad);
    assert_int_equal(row_after_death(f).final.output_tokens, 64);
}

/* tests/data/journal_v1.seg: what journal_format.c of version 1 wrote for sample_admission(1), a
 * progress record of 11 prompt and 64 output tokens, sample_admission(2) and sample_final(2). */
static void a_segment_of_version_1_is_read(void **state)
{
    struct fixture *f = *state;
    static char data[4096];
    struct usage_row rows[4];
    FILE *file = fopen("tests/data/journal_v1.seg", "rb");
    size_t len;

    assert_non_null(file);
    len = fread(data, 1, sizeof data, file);
    fclose(file);
    segment_put(f->dir, 1, data, len);
    reopen(f);
    assert_int_equal(take_all(f->j, rows, 4), 2);
    assert_int_equal(rows[0].final.outcome, OUTCOME_COMPLETED);
    assert_int_equal(rows[0].final.output_tokens, 2);
    assert_int_equal(rows[1].final.outcome, OUTCOME_INTERRUPTED);
    assert_int_equal(rows[1].final.prompt_tokens, 11);
    assert_int_equal(rows[1].final.cached_tokens, 0);
    assert_int_equal(rows[1].final.output_tokens, 64);
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
    struct journal_progress p = {
        .id = sample_id(1), .at_us = PROGRESS_US, .prompt_tokens = 11, .output_tokens = 64};
    struct fixture *f = *state;
    struct usage_row rows[4];
    struct holding h;

    admit(f, 1);
    journal_progress(f->j, &p);
    admit(f, 2);
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
        TEST(cached_tokens_are_billed_at_their_own_price),
        TEST(before_the_prefill_is_complete_nothing_is_billed),
        TEST(progress_out_of_bounds_is_not_written),
        TEST(a_segment_of_version_1_is_read),
        TEST(a_request_that_is_held_stays_open_until_it_is_finished),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
